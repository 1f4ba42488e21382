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

// InvalidValue reports settings that Felix cannot read.
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
				Message: fmt.Sprintf("%s is not a parameter of Felix %s: the variable has no effect",
					v.name, table(pass).Release),
				Evidence: map[string]any{"variable": v.name, "table": table(pass).Release},
				Fix:      "look up the name in Calico's list of parameters, or remove the variable",
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

func invalid(pass *check.Pass, subject finding.Subject, p felix.Parameter, name, value string,
	why error) finding.Finding {
	f := finding.Finding{
		ID: "felix/invalid-value", Severity: finding.Warn, Subject: subject,
		Message: fmt.Sprintf("%s is %q and %v: Felix uses its default (%s) instead, and reports this only in its log",
			name, value, why, orNone(p.Default)),
		Evidence: map[string]any{"parameter": p.Name, "value": value, "default": p.Default, "takes": p.Schema,
			"table": table(pass).Release},
		Fix: "correct the value of " + name + ", or leave it out for the default",
	}
	if p.Fatal {
		f.Severity = finding.Block
		f.Message = fmt.Sprintf(
			"%s is %q and %v: Felix exits when it reads the value, on every node to which it applies", name, value, why)
	}
	return f
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
