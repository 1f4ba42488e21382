// Package labels checks objects that select nodes by labels or by name against the nodes after a change.
package labels

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed removed_in_use.md
var removedInUseDoc string

const id = "labels/removed-in-use"

// RemovedInUse reports objects that select other nodes after the change of labels.
func RemovedInUse() check.Check {
	return check.Check{
		ID:    id,
		Title: "An object selects nodes by a label that the change removes",
		Doc:   removedInUseDoc,
		Needs: []string{"nodes"},
		Lacks: func(pass *check.Pass) string {
			if pass.WhatIf == nil {
				return "the change affects no labels (--kubernetes-to, --remove-label, --add-label, --replace-nodes)"
			}
			if missing := unread(pass); len(missing) > 0 && len(found(pass)) == 0 {
				return strings.Join(missing, "; ")
			}
			return ""
		},
		Run: func(pass *check.Pass) []finding.Finding {
			all := found(pass)
			if missing := unread(pass); len(missing) > 0 {
				all = append(all, finding.Finding{
					ID: id, Severity: finding.Info, Subject: finding.Subject{Kind: "Input", Name: "labels"},
					Message: "there may be more, since the input is incomplete: " + strings.Join(missing, "; "),
				})
			}
			return all
		},
	}
}

// unread returns the resources without which the answer is incomplete.
func unread(pass *check.Pass) []string {
	s := pass.Snapshot
	var missing []string
	if pass.WhatIf.Beyond != "" {
		missing = append(missing, pass.WhatIf.Beyond)
	}
	for _, resource := range []string{"daemonsets", "deployments", "statefulsets"} {
		if ok, why := s.Has(resource); !ok {
			missing = append(missing, resource+": "+why)
		}
	}
	if s.UsesCalico() {
		for _, resource := range []string{"ippools", "bgppeers"} {
			if why := pass.MissingCalico(resource); why != "" {
				missing = append(missing, why)
			}
		}
	}
	return missing
}

func found(pass *check.Pass) []finding.Finding {
	if len(pass.WhatIf.Effects) == 0 {
		return nil
	}
	var all []finding.Finding
	hanging := map[string][]string{} // objects that use a lost label
	counted := map[[2]string]bool{}
	for _, u := range collect(pass.Snapshot) {
		if u.bad != nil && !u.calicoPeer() { // bgp/peer-selector-empty reports those of BGPPeers
			all = append(all, u.unreadable())
		}
		if f, ok, elsewhere := u.compare(pass); ok {
			if !elsewhere {
				all = append(all, f)
			}
			for _, key := range pass.WhatIf.Lost(u.keys) {
				if at := [2]string{key, u.subject.String()}; !counted[at] {
					counted[at] = true
					hanging[key] = append(hanging[key], at[1])
				}
			}
		} else if f, ok := u.deprecated(pass); ok {
			all = append(all, f)
		}
	}
	return append(all, hangs(pass, hanging)...)
}

// hangs reports a label that several objects use.
func hangs(pass *check.Pass, hanging map[string][]string) []finding.Finding {
	var all []finding.Finding
	for _, key := range slices.Sorted(maps.Keys(hanging)) {
		subjects := hanging[key]
		if len(subjects) < 2 {
			continue
		}
		nodes := pass.WhatIf.Because(whatif.Label, []string{key}).Nodes
		all = append(all, finding.Finding{
			ID: id, Severity: finding.Info, Subject: finding.Subject{Kind: "Label", Name: key},
			Message: fmt.Sprintf("%d objects select by this one label of %s (%s), and all are affected at once: %s",
				len(subjects), cluster.Count(len(nodes), "node"), check.Names(nodes), check.Names(subjects)),
			Evidence: map[string]any{"objects": subjects, "nodes": nodes},
			Fix:      "change the objects first, one by one, and remove the label last",
		})
	}
	return all
}

// compare compares the nodes that a use selects before and after the change; ok is false if they are the same.
// elsewhere is true if bgp/peer-selector-empty reports it: a selector of a BGPPeer of Calico that no longer selects
// any.
func (u *use) compare(pass *check.Pass) (f finding.Finding, ok, elsewhere bool) {
	var before, after, lost, gained []string
	for i := range pass.WhatIf.Before.Nodes {
		today, then := &pass.WhatIf.Before.Nodes[i], &pass.WhatIf.After.Nodes[i]
		was, is := u.picks(nil, today), u.picks(nil, then)
		if was {
			before = append(before, today.Name)
		}
		if is {
			after = append(after, today.Name)
		}
		switch {
		case was && !is:
			lost = append(lost, today.Name)
		case is && !was:
			gained = append(gained, today.Name)
		}
	}
	if len(lost)+len(gained) == 0 {
		return f, false, false
	}
	f = finding.Finding{
		ID: id, Severity: finding.Warn, Subject: u.subject,
		Evidence: map[string]any{"field": u.field, "selector": u.text, "before": before, "after": after,
			"lost": lost, "gained": gained},
	}
	var parts []string
	if len(lost) > 0 {
		parts = append(parts, fmt.Sprintf("%s no longer selects %d of %s (%s): %s",
			u.named(), len(lost), cluster.Count(len(before), "node"), check.Names(lost), u.loss))
		if u.always || len(after) == 0 {
			f.Severity = finding.Block
		}
	}
	if len(gained) > 0 {
		parts = append(parts, fmt.Sprintf("%s selects %d more (%s): %s", u.named(), len(gained),
			check.Names(gained), u.gain))
	}
	f.Message = strings.Join(parts, "; ")
	if because := pass.WhatIf.Because(whatif.Label, u.keys); because != nil {
		f.Message += " (" + because.String() + ")"
		f.Evidence["because"], f.Evidence["source"] = because.String(), because.Source
	}
	f.Fix = u.fix(pass.WhatIf)
	return f, true, len(lost) > 0 && len(after) == 0 && u.calicoPeer()
}

// calicoPeer reports whether it is Calico's BGPPeer.
func (u *use) calicoPeer() bool {
	return strings.HasPrefix(u.resource, "bgppeers.") && strings.HasSuffix(u.resource, "projectcalico.org")
}

// unreadable reports a selector that cannot be parsed, by Calico neither.
func (u *use) unreadable() finding.Finding {
	return finding.Finding{
		ID: id, Severity: finding.Warn, Subject: u.subject,
		Message: fmt.Sprintf("%s cannot be parsed (%v): Calico cannot parse it either, and the intended nodes "+
			"are unknown", u.named(), u.bad),
		Evidence: map[string]any{"field": u.field, "selector": u.text},
		Fix:      fmt.Sprintf("correct it: kubectl edit %s", shell.Words(u.resource, u.subject.Name)),
	}
}

func (u *use) named() string { return fmt.Sprintf("its %s (%s)", u.field, u.text) }

func (u *use) fix(r *whatif.Result) string {
	lost := r.Lost(u.keys)
	if len(lost) == 0 {
		return ""
	}
	own := "keep/" + lost[0][strings.LastIndex(lost[0], "/")+1:]
	if u.calicoPeer() {
		own = "route-reflector" // as in the fixes of the checks of BGP
	}
	repair := r.Repair(u.keys, own, u.picks)
	switch {
	case repair == nil || len(repair.Rename) > 0 && u.patch == nil:
		return "use a label that stays, or restore the label: kubectl label node NODE " + shell.Word(lost[0]+"=VALUE")
	case len(repair.Rename) == 0:
		return strings.Join(repair.Commands, " && ") +
			" (when the nodes come back; better: add the labels to the cloud's node template)"
	}
	return strings.Join(append(repair.Commands, u.command(u.patch(repair.Rename))), " && ")
}

// deprecated reports labels that stay for now, and have a successor.
func (u *use) deprecated(pass *check.Pass) (finding.Finding, bool) {
	if pass.Change.KubernetesTo == "" {
		return finding.Finding{}, false
	}
	for _, key := range u.keys {
		if to := whatif.Replacement(key); to != "" && len(pass.WhatIf.Lost([]string{key})) == 0 {
			return finding.Finding{
				ID: id, Severity: finding.Info, Subject: u.subject,
				Message: fmt.Sprintf("%s uses the deprecated label %s, which this upgrade does not remove",
					u.named(), key),
				Evidence: map[string]any{"field": u.field, "selector": u.text, "label": key, "replacement": to},
				Fix:      "use " + to + " if the nodes have it",
			}, true
		}
	}
	return finding.Finding{}, false
}
