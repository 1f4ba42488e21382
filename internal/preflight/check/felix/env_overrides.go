package felix

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/felix"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed env_overrides.md
var envOverridesDoc string

// EnvOverrides reports settings in a FelixConfiguration that an environment variable overrides.
func EnvOverrides() check.Check {
	return check.Check{
		ID:    "felix/env-overrides",
		Title: "An environment variable of calico-node overrides a FelixConfiguration",
		Doc:   envOverridesDoc,
		Needs: []string{"daemonsets"},
		Lacks: lacks,
		Run:   envOverrides,
	}
}

func envOverrides(pass *check.Pass) []finding.Finding {
	all := variables(pass)
	var found []finding.Finding
	for _, s := range settings(pass) {
		for _, v := range all {
			if v.parameter.Name == s.parameter.Name {
				found = append(found, override(s, v))
			}
		}
	}
	return found
}

func override(s setting, v variable) finding.Finding {
	f := finding.Finding{
		ID: "felix/env-overrides", Severity: finding.Warn, Subject: s.subject,
		Evidence: map[string]any{"field": s.parameter.Field, "value": shown(s.value), "variable": v.name,
			"in": v.subject.Namespace + "/" + v.subject.Name},
		Fix: fmt.Sprintf("kubectl -n %s set env %s -c calico-node %s (this restarts every calico-node, one after "+
			"another), or remove %s from the FelixConfiguration",
			shell.Word(v.subject.Namespace), shell.Word("daemonset/"+v.subject.Name),
			shell.Word(v.name+"-"), s.parameter.Field),
	}
	where := fmt.Sprintf("the DaemonSet %s/%s sets %s", v.subject.Namespace, v.subject.Name, v.name)
	switch {
	case !v.known:
		f.Message = fmt.Sprintf(
			"%s is %s here, but %s from an object that is not in the input: the variable takes precedence",
			s.parameter.Field, shown(s.value), where)
	case same(s.parameter, s.value, v.value):
		f.Severity = finding.Info
		f.Message = fmt.Sprintf("%s is %s here, and %s to the same value: to change it here would have no effect",
			s.parameter.Field, shown(s.value), where)
		f.Evidence["counts"] = v.value
	default:
		f.Message = fmt.Sprintf("%s is %s here, but %s to %q, which takes precedence: the field has no effect",
			s.parameter.Field, shown(s.value), where, v.value)
		f.Evidence["counts"] = v.value
	}
	return f
}

// same compares a field with the text of a variable, as Felix would parse them.
func same(p felix.Parameter, field any, text string) bool {
	written, ok := felix.Text(field)
	if !ok {
		return false
	}
	if strings.EqualFold(written, text) {
		return true
	}
	unit := map[bool]time.Duration{true: time.Millisecond, false: time.Second}[strings.HasPrefix(p.Schema, "Milli")]
	duration, err := time.ParseDuration(written)
	count, notNumber := strconv.ParseFloat(text, 64)
	if strings.Contains(p.Schema, "econds") && err == nil && notNumber == nil {
		return duration == time.Duration(count*float64(unit))
	}
	a, errA := strconv.ParseInt(written, 0, 64)
	b, errB := strconv.ParseInt(text, 0, 64)
	return errA == nil && errB == nil && a == b
}
