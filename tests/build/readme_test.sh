#!/usr/bin/env bash
# README's figures are those of the files they are said to be of: readme_test.sh SOURCE_DIR. Table, sentence
# and plot are computed again from the tables of results/h200/shapes, of one commit; so is sm90's table.
set -uo pipefail
cd "$1" || exit 1
shapes=results/h200/shapes
failures=0
fail() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}
said=$(sed -n '/<!-- figures: begin -->/,/^<img/p' README.md)
expect() { [[ $(tr '\n' ' ' <<<"$said") == *"$1"* ]] || fail "a README does not say \"$1\""; }

# times FILE SECTION: "shape ours peer" of a section's rows.
times() { awk -F ' *[|] *' -v title="## $2" '/^## / { ours = $0 == title } ours && $3 ~ /^[0-9.]+$/ { print $2, $3, $4 }' "$shapes/$1"; }
goals=$(times lse.md "Goal shapes, peer/flash3_fp8")
cudnn_fp8=$(times no_lse.md "Goal shapes, peer/cudnn_fp8")
cudnn_bf16=$(times no_lse.md "Goal shapes, peer/cudnn_bf16")
# Of a shape: our and the peer's TFLOP/s, and the ratio.
of() { # TIMES SHAPE
  awk -v shape="$2" '$1 == shape {
    split(shape, part, /[dk_]/); dim = part[2]; length_ = 1024 * part[3]
    flop = 4 * (dim == 256 ? 8 : 16) * 16384 * length_ * dim / (shape ~ /causal/ ? 2 : 1)
    printf "%.0f %.0f %.2f\n", flop / $2 / 1e6, flop / $3 / 1e6, $3 / $2 }' <<<"$1"
}
for dim in 64 128 256; do
  read -r rate _ ratio < <(of "$goals" "d${dim}_16k")
  read -r causal_rate _ causal_ratio < <(of "$goals" "d${dim}_16k_causal")
  row="| $dim | $rate / $causal_rate | $ratio / $causal_ratio |"
  for cudnn in "$cudnn_fp8" "$cudnn_bf16"; do # no times of a peer whose output fails the gates
    read -r _ _ ratio < <(of "$cudnn" "d${dim}_16k")
    read -r _ _ causal_ratio < <(of "$cudnn" "d${dim}_16k_causal")
    row+=" ${ratio:--} / ${causal_ratio:--} |"
  done
  expect "$row"
done
mean() { awk '{ sum += log($3 / $2) } END { printf "%.2f", exp(sum / NR) }'; }
drawn=$(times lse.md "$(sed -n 's/^## \(Shapes drawn .*\)/\1/p' $shapes/lse.md)")
expect "FlashAttention-3 is $(mean <<<"$goals")"
expect "drawn at random $(mean <<<"$drawn")"
expect "down to $(printf '%s\n' "$goals" "$drawn" | awk '{ print $3 / $2 }' | sort -g | head -n 1 | xargs printf '%.2f')"
expect "commit $(sed -n 's/.*"commit": "\(.......\).*/\1/p' $shapes/floors.json)"

said=$(sed -n '/^| goal shape/,/^## /p' kernels/sm90/README.md | tr -d '*')
for shape in d64_4k d64_16k d128_2k d128_8k d128_16k d256_4k d256_16k small mission batch2 long chunk_32k; do
  read -r rate _ ratio < <(of "$goals" "$shape")
  read -r causal_rate _ causal_ratio < <(of "$goals" "${shape}_causal")
  read -r _ _ cudnn < <(of "$cudnn_fp8" "$shape")
  read -r _ _ causal_cudnn < <(of "$cudnn_fp8" "${shape}_causal")
  [[ $shape == d* ]] && rates="$rate / $causal_rate" || rates=latency
  expect "| $shape | $ratio / $causal_ratio | ${cudnn:--} / ${causal_cudnn:--} | $rates |"
  cudnn="" causal_cudnn=""
done
expect "commit $(sed -n 's/.*"commit": "\(.......\).*/\1/p' $shapes/floors.json)"
said=$(sed -n '/<!-- figures: begin -->/,/^<img/p' README.md)

# What quantisation costs and gives, at 4k without a mask.
quality=results/h200/quality
said=$(sed -n '/^| a scale for/,/^$/p' README.md)
pair() { awk -F ' *[|] *' -v column="$1" '$2 == "d64_4k" { x = $column } $2 == "d128_4k" { printf "%s / %s", x, $column }' \
  $quality/unquantised.md; }
expect "| each head | $(pair 15) | $(pair 16) | $(pair 5) | $(pair 9) |"
expect "| 64 queries, 128 keys | $(pair 10) | $(pair 13) | $(pair 4) | $(pair 8) |"
expect "| each head, \`int8\` | - | $(pair 23) | $(pair 19) | $(pair 21) |"
expect "| none, bf16: cuDNN; FlashAttention-3 | $(pair 18) | - | $(pair 6); $(pair 24) | - |"
said=$(tr '\n' ' ' <README.md)
# Of FlashAttention-3's bf16 over ours, the least and the most: with descales of heads, and of blocks.
over_heads() { awk -F ' *[|] *' '$24 ~ /^[0-9.]+$/ { printf "%.2f\n", $24 / $5 }' $quality/unquantised.md | sort -g "$@" | head -n 1; }
over() { awk -F ' *[|] *' '$25 ~ /^[0-9.]+$/ { print $25 }' $quality/unquantised.md | sort -g "$@" | head -n 1; }
expect "the call is $(over_heads) (4k causal) to $(over_heads -r) times as fast as FlashAttention-3's bf16, with scales of blocks $(over) to $(over -r)"
expect "commit $(sed -n 's/.*"commit": "\(.......\).*/\1/p' $quality/floors.json) (\`$quality/\`)"

# The quantiser's rates, at the worst of the shapes.
said=$(tr '\n' ' ' <kernels/quantise/README.md)
rate() { grep -A1 "quantiser, $1, share" $quality/floors.json | sed -n 's/.*"value": \([0-9.]*\).*/\1/p' | xargs printf '%.2f'; }
expect "descales of heads $(rate plain) without options and $(rate both) with rotation and smoothing"
expect "of blocks $(rate 'blocks, plain') and $(rate 'blocks, both'), given ones $(rate static)"

# What the gates of others let through, and what ours kill.
matrix=$(<results/kill_matrix.md)
[[ $matrix =~ \*\*([0-9]+)\ of\ ([0-9]+)\ wrong ]] || fail "results/kill_matrix.md has no total"
killed=${BASH_REMATCH[1]:-} wrong=${BASH_REMATCH[2]:-}
[[ $killed == "$wrong" ]] || fail "results/kill_matrix.md: $killed of $wrong are killed"
[[ $matrix =~ let\ [0-9]+\ of\ ([0-9]+)\ through ]] || fail "results/kill_matrix.md has no peers"
asked=${BASH_REMATCH[1]:-}
passed() { sed -n "s/^On unit-normal.*$1 \([0-9]*\)[;.].*/\1/p" <<<"$matrix"; }
said=$(sed 's/^ *//' README.md)
expect "** $wrong wrong kernels"
expect "Of $asked that the published gates"
expect "FlashAttention-3's lets $(passed FlashAttention-3) through, cuDNN frontend's $(passed 'cuDNN frontend'), Transformer Engine's $(passed 'Transformer Engine') and FlashInfer's $(passed FlashInfer). "
said=$(<tests/README.md)
expect "| | wrong kernels that it lets through, of $asked |"
expect "| FlashAttention-3's published gate | $(passed FlashAttention-3) |"
for peer in 'cuDNN frontend' 'Transformer Engine' FlashInfer; do expect "| $peer's | $(passed "$peer") |"; done
expect " $((wrong - asked)) of the $wrong faults leave no output"

# The plot's points have their numbers beside them.
plot=$(sed -n 's/.*<img src="\([^"]*\)".*/\1/p' README.md)
[[ $plot == "$shapes"/* ]] || fail "README.md's plot is $plot, and its table is of $shapes"
for shape in d128_{2,8,16}k{,_causal}; do
  read -r rate peer _ < <(of "$goals" "$shape")
  for number in "$rate" "$peer"; do
    grep -q ">$number</text>" "$plot" || fail "$plot has no $number, which is of $shape"
  done
done
[[ $failures -eq 0 ]]
