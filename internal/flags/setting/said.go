package setting

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/theseus-cni/theseus/internal/flags/felix"
)

// saidByCilium returns how Cilium's agent logs a value: at startup it logs every flag on a line of its own.
func (k *Knob) saidByCilium(value string) (parameter, text string, ok bool) {
	switch k.Type {
	case Bool:
		value = cmp.Or(value, "false")
	case Integer, Number:
		value = cmp.Or(value, "0")
	case Duration:
		value = cmp.Or(value, "0s")
	case List:
		value = strings.Trim(value, "[]") // the default has brackets
	case Map: // the order of the pairs is random
		return "", "", false
	}
	if k.Process != CiliumAgent || strings.ContainsAny(value, " \t\r\n'\"\\") {
		return "", "", false
	}
	return k.Name, "'" + value + "'", true
}

// stamped matches the time in a line of Cilium's log, which is text or JSON.
var stamped = regexp.MustCompile(`\btime"?[=:]"?([0-9TZ:.+-]+)`)

// InLog finds the value of a parameter in one line of a container's log: cilium-agent's format for that container,
// Felix's for any other. It is not ok for other lines. at is the line's own time, empty if its format has none.
func InLog(container, line, parameter string) (value, at string, ok bool) {
	if container == CiliumAgent {
		return ciliumSays(line, parameter)
	}
	return felix.Parameter{Name: parameter}.InLog(line)
}

// ciliumSays finds the value of a flag in one line of cilium-agent's log, including the apostrophes that the agent puts
// around values.
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
