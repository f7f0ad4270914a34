# ./sdpa completion, for the launcher, which reads this file: a script with the words that a shell offers,
# commands and the options of each, from help.txt.
completion() {
  cat <<SCRIPT
# For bash; for zsh after "autoload -U +X bashcompinit && bashcompinit".
_sdpa() {
  local words
  case \$COMP_CWORD:\${COMP_WORDS[1]} in
    1:*) words="$(help_of help | sed -n 's/^  \([a-z-]*\)\( .*\|$\)/\1/p' | grep -x -- '[a-z]\+\|--version' | paste -sd ' ')" ;;
$(awk '/^== / { command = $2; next }
      command != "help" && match($0, /^ +(-h,)?--[a-z_-]+/) {
        option = substr($0, RSTART, RLENGTH); sub(/^ +(-h,)?/, "", option); of[command] = of[command] " " option }
      END { for (c in of) printf "    *:%s) words=\"%s\" ;;\n", c, substr(of[c], 2) }' \
    "$root/benchmarks/command/help.txt" | sort)
  esac
  COMPREPLY=(\$(compgen -W "\$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _sdpa sdpa ./sdpa
SCRIPT
}
