package felix

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/felix"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed invalid_value.md
var invalidValueDoc string

// InvalidValue finds settings that Felix does not take.
func InvalidValue() check.Check {
	return check.Check{
		ID:    "felix/invalid-value",
		Title: "Felix cannot read a setting, and silently uses its default",
		Doc:   invalidValueDoc,
		Needs: []string{"daemonsets"},
		Lacks: lacks,
		Run:   invalidValues,
	}
}

func invalidValues(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for _, v := range variables(pass) {
		switch {
		case v.parameter.Name == "":
			found = append(found, finding.Finding{
				ID: "felix/invalid-value", Severity: finding.Info, Subject: v.subject,
				Message:  fmt.Sprintf("%s is no parameter of Felix %s: the variable does nothing", v.name, table(pass).Release),
				Evidence: map[string]any{"variable": v.name, "table": table(pass).Release},
				Fix:      "look for its name in Calico's list of parameters, or take the variable out",
			})
		case v.known:
			if err := v.parameter.Check(v.value); err != nil {
				found = append(found, invalid(pass, v.subject, v.parameter, v.name, v.value, err))
			}
		}
	}
	for _, s := range settings(pass) {
		if err := s.parameter.CheckField(s.value); err != nil {
			found = append(found, invalid(pass, s.subject, s.parameter, s.parameter.Field, shown(s.value), err))
		}
	}
	return found
}

func invalid(pass *check.Pass, subject finding.Subject, p felix.Parameter, name, value string, why error) finding.Finding {
	f := finding.Finding{
		ID: "felix/invalid-value", Severity: finding.Warn, Subject: subject,
		Message: fmt.Sprintf("%s is %q and %v: Felix takes its default (%s) instead, and says so in its log alone",
			name, value, why, orNone(p.Default)),
		Evidence: map[string]any{"parameter": p.Name, "value": value, "default": p.Default, "takes": p.Schema, "table": table(pass).Release},
		Fix:      "write " + name + " as Felix takes it, or leave it out for the default",
	}
	if p.Fatal {
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("%s is %q and %v: Felix ends as soon as it reads it, on every node that it is for", name, value, why)
	}
	return f
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
