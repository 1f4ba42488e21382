package setting

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/theseus-cni/theseus/internal/flags/felix"
)

// saidByCilium is how Cilium's agent writes a value into its log: every flag by itself, when it starts.
func (k *Knob) saidByCilium(value string) (parameter, text string, ok bool) {
	switch k.Type {
	case Bool:
		value = cmp.Or(value, "false")
	case Integer, Number:
		value = cmp.Or(value, "0")
	case Duration:
		value = cmp.Or(value, "0s")
	case List:
		value = strings.Trim(value, "[]") // as the default is given
	case Map: // pairs come in any order
		return "", "", false
	}
	if k.Process != CiliumAgent || strings.ContainsAny(value, " \t\r\n'\"\\") {
		return "", "", false
	}
	return k.Name, "'" + value + "'", true
}

// stamped is the time of a line of Cilium's log, which is text or JSON.
var stamped = regexp.MustCompile(`\btime"?[=:]"?([0-9TZ:.+-]+)`)

// InLog finds what an agent says of a parameter, in one line of the log of a container: that of cilium-agent, or any other
// for Felix'. It is not ok for other lines. at is the line's own time, empty where its format has none.
func InLog(container, line, parameter string) (value, at string, ok bool) {
	if container == CiliumAgent {
		return ciliumSays(line, parameter)
	}
	return felix.Parameter{Name: parameter}.InLog(line)
}

// ciliumSays finds what a running cilium-agent says of a flag, in one line of its log, with the apostrophes that it puts around
// values.
func ciliumSays(line, flag string) (value, at string, ok bool) {
	_, rest, found := strings.Cut(line, "  --"+strings.ToLower(flag)+"='")
	if !found {
		return "", "", false
	}
	value, _, ok = strings.Cut(rest, "'")
	if !ok {
		return "", "", false
	}
	if m := stamped.FindStringSubmatch(line); m != nil {
		at = m[1]
	}
	return "'" + value + "'", at, true
}
