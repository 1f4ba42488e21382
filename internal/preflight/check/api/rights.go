// Package api checks the API that a change depends on: this user's rights, removed versions, certificates, and API
// groups that pods serve.
package api

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed rights.md
var rightsDoc string

// Rights reports rights that a change needs and this user lacks.
func Rights() check.Check {
	return check.Check{
		ID:    "api/rights",
		Title: "This user may not do what the change needs",
		Doc:   rightsDoc,
		Needs: []string{"rights"},
		Run:   rights,
	}
}

func rights(pass *check.Pass) []finding.Finding {
	var order []finding.Subject
	denied := map[finding.Subject][]string{}
	for _, right := range pass.Snapshot.Rights {
		if right.Allowed {
			continue
		}
		name := right.Resource
		if right.Group != "" {
			resource, sub, _ := strings.Cut(right.Resource, "/")
			if name = resource + "." + right.Group; sub != "" {
				name += "/" + sub
			}
		}
		subject := finding.Subject{Kind: "Resource", Namespace: right.Namespace, Name: name}
		if denied[subject] == nil {
			order = append(order, subject)
		}
		denied[subject] = append(denied[subject], right.Verb)
	}
	var found []finding.Finding
	for _, subject := range order {
		verbs, where, flag := denied[subject], "", ""
		if subject.Namespace != "" {
			where, flag = " in namespace "+subject.Namespace, " -n "+shell.Word(subject.Namespace)
		}
		found = append(found, finding.Finding{
			ID: "api/rights", Severity: finding.Block,
			Subject: subject,
			Message: fmt.Sprintf("this user may not %s %s%s: the change would stop half-way",
				strings.Join(verbs, ", "), subject.Name, where),
			Evidence: map[string]any{"verbs": verbs},
			Fix: "ask for the rights, or use a context that has them; check with: kubectl auth can-i " +
				shell.Words(verbs[0], subject.Name) + flag,
		})
	}
	return found
}
