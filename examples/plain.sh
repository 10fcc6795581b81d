#!/bin/sh
# A job without the SDK: SIGTERM means save and leave with exit code 85; the next start reads what was saved.
#
#     trine submit examples/plain.yaml
#     trine submit --gpus 1 -- sh examples/plain.sh
#     sh examples/plain.sh          # without trine
#
# A job that knows nothing of SIGTERM runs as well: it is stopped by it and starts from the beginning next time.
set -eu
stop=no
trap 'stop=yes' TERM    # noted here, acted on between two steps
steps=${STEPS:-100}
step_s=${STEP_S:-0.05}
folder=${TRINE_CHECKPOINT_DIR:-checkpoints}
mkdir -p "$folder"

step=0
sum=0
if [ -f "$folder/plain.txt" ]; then
    read -r step sum < "$folder/plain.txt"
fi

save() {                # aside first, then renamed: no half file is ever seen
    echo "$step $sum" > "$folder/plain.tmp"
    mv "$folder/plain.tmp" "$folder/plain.txt"
}

while [ "$step" -lt "$steps" ]; do
    sleep "$step_s" || true     # the signal may reach the sleep as well
    step=$((step + 1))
    sum=$((sum + step))
    if [ "$stop" = yes ]; then
        save
        echo "leaving after step $step" >&2
        exit 85
    fi
done
save
echo "steps $step sum $sum"
