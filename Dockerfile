# One image for all nodes of a cluster: Ray as tested, and what biaseval needs, in the tested versions.
#
#   docker build -t REGISTRY/biaseval:0.1.0 .
#   docker push REGISTRY/biaseval:0.1.0
#
# Then name it in cluster.yaml (docker.image) or kubernetes/rayjob.yaml. It serves nodes without a GPU, too. A GPU needs
# NVIDIA's driver 580 or newer on the machine: torch brings its own CUDA 13. Tokens and keys do not belong in an image:
# HF_TOKEN and the right to read a bucket come to a node as docs/scale.md says.
# A tag may come to mean another image: for one that cannot, write rayproject/ray@sha256:... here, with the digest that
# `docker buildx imagetools inspect rayproject/ray:2.60.0-py311-gpu` shows, and name your own image by digest, too.
FROM rayproject/ray:2.60.0-py311-gpu

WORKDIR /home/ray/biaseval
COPY --chown=ray:users pyproject.toml constraints.txt README.md LICENSE ./
COPY --chown=ray:users platform ./platform
COPY --chown=ray:users analytics ./analytics
RUN pip install --no-cache-dir -c constraints.txt '.[gpu,aws,train,qa,harness]' \
    && python -c "import torch; assert torch.version.cuda, 'this torch was built for CPUs alone'"
# Jobs of Kubernetes start from here; `ray job submit --working-dir .` brings its own, with the package, which goes first.
COPY --chown=ray:users jobs ./jobs
