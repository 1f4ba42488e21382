package setting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/step"
)

func subjectOf(ref step.Ref) finding.Subject {
	return finding.Subject{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// Lint reports problems in the current settings of a cluster: unknown settings, invalid values, values that are
// overridden everywhere, and values that conflict.
func (f *Fleet) Lint() []finding.Finding {
	var found []finding.Finding
	for _, s := range f.strays {
		found = append(found, strayFinding(s))
	}
	for _, s := range f.unread {
		found = append(found, finding.Finding{ID: "flags/selector", Severity: finding.Block, Subject: subjectOf(s.Ref),
			Message: s.Name + ": the object applies to no node", Fix: "correct the selector"})
	}
	found = append(found, f.overlaps()...)
	for _, k := range f.catalogue.knobs {
		if len(f.levels[k]) == 0 {
			continue
		}
		for _, s := range f.written(k) {
			if s.Invalid != "" {
				found = append(found, invalidFinding(k, s))
			}
		}
		for _, i := range f.idle(k, func(*Set) bool { return true }) {
			found = append(found, hiddenFinding(i))
		}
		found = append(found, f.conflicts(k)...)
	}
	sorted(found)
	return found
}

func sorted(found []finding.Finding) {
	rank := map[finding.Severity]int{finding.Block: 0, finding.Warn: 1, finding.Info: 2}
	slices.SortStableFunc(found, func(a, b finding.Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Severity], rank[b.Severity]), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Subject.Kind, b.Subject.Kind), cmp.Compare(a.Subject.Name, b.Subject.Name),
			cmp.Compare(a.Message, b.Message))
	})
}

func strayFinding(s Stray) finding.Finding {
	f := finding.Finding{ID: "flags/unknown", Severity: finding.Block, Subject: subjectOf(s.Ref),
		Message:  fmt.Sprintf("%s is not a setting: it has no effect", s.Name),
		Evidence: map[string]any{"setting": s.Name}}
	// such as a key for the Helm chart, a hidden flag, or a setting of a component without a catalogue
	if s.Near == "" {
		f.Message = s.Name + " is not a known setting: it may be a hidden one, or have no effect"
		f.Severity, f.Fix = finding.Info, "remove it, unless the agent or another program reads it"
		return f
	}
	f.Fix = "did you mean " + s.Near + "?"
	return f
}

func invalidFinding(k *Knob, s *Set) finding.Finding {
	f := finding.Finding{ID: "flags/value", Severity: finding.Block, Subject: subjectOf(s.Ref),
		Message: fmt.Sprintf("%s is %q, which %s does not accept: %s",
			k.Name, s.Value, k.process(s.Place.Effect), s.Invalid),
		Evidence: map[string]any{"knob": k.ID(), "value": s.Value, "default": k.Default},
		Fix:      "theseus flags explain " + k.ID()}
	if k.BadValue != "" {
		f.Message += "; " + k.BadValue
	}
	return f
}

func hiddenFinding(i Idle) finding.Finding {
	s, by, k := i.Edit, i.By, i.Edit.Knob
	where := "on the one node that it applies to"
	switch {
	case i.Nodes > 1 && s.on >= 0:
		where = fmt.Sprintf("here and on %d more nodes", i.Nodes-1)
	case i.Nodes > 1:
		where = fmt.Sprintf("on all %d nodes that it applies to", i.Nodes)
	}
	f := finding.Finding{ID: "flags/no-effect", Severity: finding.Warn, Subject: subjectOf(s.Ref),
		Message: fmt.Sprintf("%s is %q here and has no effect: %s overrides it with %q %s",
			k.Name, s.Value, by.Ref, by.Value, where),
		Evidence: map[string]any{"knob": k.ID(), "value": s.Value, "by": by.Ref.String(), "place": by.Place.Name,
			"counts": by.Value, "nodes": i.Nodes},
		Fix: fmt.Sprintf("remove it from %s, or from here", by.Ref)}
	if by.Unknown {
		f.Message = fmt.Sprintf("%s is %q here and has no effect: %s overrides it with a value from an "+
			"object that is not in the input",
			k.Name, s.Value, by.Ref)
	}
	// A value that narrower places override on all of today's nodes still applies to a node that joins.
	if k.Same(s.Value, by.Value) || slices.Index(scopes, by.Place.Scope) > slices.Index(scopes, s.Place.Scope) {
		f.Severity = finding.Info
	}
	return f
}

// overlaps finds FelixConfigurations that have no effect on a node because an older one selects that node too.
func (f *Fleet) overlaps() []finding.Finding {
	all := f.configs["FelixConfiguration"]
	if len(all) < 2 {
		return nil
	}
	type pair struct{ loser, winner int }
	nodes := map[pair][]string{}
	for n, node := range f.nodes {
		won := f.matched["FelixConfiguration"][n]
		for at, c := range all {
			if len(won) > 0 && won[0] != at && c.matches(node) {
				key := pair{at, won[0]}
				nodes[key] = append(nodes[key], node.Name)
			}
		}
	}
	var found []finding.Finding
	for key, names := range nodes {
		loser, winner := all[key.loser].object, all[key.winner].object
		found = append(found, finding.Finding{ID: "flags/selectors-overlap", Severity: finding.Warn,
			Subject: finding.Subject{Kind: "FelixConfiguration", Name: loser.GetName()},
			Message: fmt.Sprintf("it has no effect on %s: FelixConfiguration %s selects the same and is older",
				some(names), winner.GetName()),
			Evidence: map[string]any{"nodes": len(names), "by": winner.GetName()},
			Fix:      "change the selectors so that they select different nodes"})
	}
	return found
}

// some lists the first few names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// conflicts finds values of a knob that conflict with values of other knobs, if both components are installed.
func (f *Fleet) conflicts(k *Knob) []finding.Finding {
	var found []finding.Finding
	for _, c := range k.Couples {
		other, known := f.catalogue.Get(c.With)
		if !known || len(c.Needs)+len(c.Not) == 0 || !f.runs(other.Component) || !f.runs(k.Component) {
			continue
		}
		type values struct{ one, two string }
		nodes := map[values][]string{}
		var order []values
		for n, node := range f.nodes {
			v := values{valueOf(k, f.winner(k, n)), valueOf(other, f.winner(other, n))}
			if c.clashes(k, other, v.one, v.two) {
				if nodes[v] == nil {
					order = append(order, v)
				}
				nodes[v] = append(nodes[v], node.Name)
			}
		}
		for _, v := range order {
			found = append(found, finding.Finding{ID: "flags/conflict", Severity: finding.Warn,
				Subject: finding.Subject{Kind: "Flag", Name: k.ID()},
				Message: fmt.Sprintf("%s is %s and %s is %s on %s: %s", k.ID(), v.one, other.ID(),
					v.two, some(nodes[v]), c.Why),
				Evidence: map[string]any{"with": other.ID(), "nodes": len(nodes[v])},
				Fix:      "theseus flags explain " + k.ID()})
		}
	}
	return found
}

func (c Coupling) clashes(k, other *Knob, one, two string) bool {
	if c.When != "" && !strings.EqualFold(c.When, one) && !k.Same(c.When, one) {
		return false
	}
	is := func(value string) bool {
		return strings.EqualFold(value, two) || other.Same(value, two) ||
			other.Places[0].Scope == Pool && slices.Contains(poolValues(two), value)
	}
	return len(c.Needs) > 0 && !slices.ContainsFunc(c.Needs, is) || slices.ContainsFunc(c.Not, is)
}

// poolValues returns the individual values of a knob that is set for each pool.
func poolValues(text string) []string {
	var values []string
	for one := range strings.SplitSeq(text, ",") {
		_, value, _ := strings.Cut(one, "=")
		values = append(values, value)
	}
	return values
}

// runs reports whether the input contains a component.
func (f *Fleet) runs(component string) bool {
	container := containers[component]
	if slices.ContainsFunc(f.sets, func(set *appsv1.DaemonSet) bool { return hasContainer(set, container) }) {
		return true
	}
	for k := range f.levels {
		if k.Component == component {
			return true
		}
	}
	return false
}

// LintEdit reports consequences of an edit that its author should know: that it has no effect, that the value is
// invalid, or that it takes effect on many nodes at the same time.
func LintEdit(d Difference) []finding.Finding {
	var found []finding.Finding
	for _, i := range d.Idle {
		f := hiddenFinding(i)
		if f.Severity == finding.Warn {
			f.Severity = finding.Block // an edit without effect is a mistake
		}
		found = append(found, f)
	}
	for _, p := range d.Processes {
		if p.AtOnce < 2 {
			continue
		}
		found = append(found, finding.Finding{ID: "flags/restarts-all", Severity: finding.Warn,
			Subject: finding.Subject{Kind: "Process", Name: p.Name},
			Message: fmt.Sprintf("%s %s on %d of %d nodes at the same time",
				p.Name, p.Effect.words(), p.AtOnce, d.Nodes),
			Evidence: map[string]any{"atOnce": p.AtOnce, "nodes": d.Nodes}, Fix: "set it for some nodes first " +
				"(theseus flags explain FLAG shows the narrowest place), and for all nodes last"})
	}
	sorted(found)
	return found
}

// words describes the effect on a process and on the pods that depend on it.
func (e Effect) words() string {
	return map[Effect]string{Live: "applies it without a restart", Restart: "restarts", Recreate: "is recreated",
		Workloads: "restarts, and pods must be recreated,"}[e]
}
