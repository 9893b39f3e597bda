#!/bin/sh
# A gate for continuous integration: it measures, and fails with exit code 3 where a bias is shown, or where one label for
# all does as well.
#     examples/gate.sh runs/reviews
set -eu
run=${1:-runs/reviews}
biaseval run "$(dirname "$0")/reviews.yaml" --run-dir "$run"
biaseval check "$run" --junit "$run/gates.xml" \
  --preset "unbiased where suite = 'all' and method = 'none' and n_demos = 4"
