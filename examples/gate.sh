#!/bin/sh
# A gate for continuous integration: measures, and fails with exit code 3 where a bias is above what is allowed.
#     examples/gate.sh runs/reviews
set -eu
run=${1:-runs/reviews}
biaseval run "$(dirname "$0")/reviews.yaml" --run-dir "$run"
biaseval check "$run" --junit "$run/gates.xml" --markdown "$run/gates.md" \
  "rsd < 0.2 where method = 'none' and n_demos > 0" \
  "accuracy_low >= majority_accuracy where method = 'none' and n_demos > 0"
