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

// Lint says what is wrong with the settings of a cluster as they are: what no component knows or takes, what does
// nothing as something else beats it, and what does not go together.
func (f *Fleet) Lint() []finding.Finding {
	var found []finding.Finding
	for _, s := range f.strays {
		found = append(found, strayFinding(s))
	}
	for _, s := range f.unread {
		found = append(found, finding.Finding{ID: "flags/selector", Severity: finding.Block, Subject: subjectOf(s.Ref),
			Message: s.Name + ": the object counts on no node", Fix: "correct the selector"})
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
			cmp.Compare(a.Subject.Kind, b.Subject.Kind), cmp.Compare(a.Subject.Name, b.Subject.Name), cmp.Compare(a.Message, b.Message))
	})
}

func strayFinding(s Stray) finding.Finding {
	f := finding.Finding{ID: "flags/unknown", Severity: finding.Block, Subject: subjectOf(s.Ref),
		Message: fmt.Sprintf("%s is no setting: it does nothing", s.Name), Evidence: map[string]any{"setting": s.Name}}
	if s.Near == "" { // such as a key of a chart's own, a flag that its help hides, or of a component that is not in the catalogue
		f.Message = s.Name + " is in no list of settings that is known: it may be a hidden one, or do nothing"
		f.Severity, f.Fix = finding.Info, "take it out, unless the agent, or something else, reads it"
		return f
	}
	f.Fix = "did you mean " + s.Near + "?"
	return f
}

func invalidFinding(k *Knob, s *Set) finding.Finding {
	f := finding.Finding{ID: "flags/value", Severity: finding.Block, Subject: subjectOf(s.Ref),
		Message:  fmt.Sprintf("%s is %q, which %s does not take: %s", k.Name, s.Value, k.process(s.Place.Effect), s.Invalid),
		Evidence: map[string]any{"knob": k.ID(), "value": s.Value, "default": k.Default}, Fix: "theseus flags explain " + k.ID()}
	if k.BadValue != "" {
		f.Message += "; " + k.BadValue
	}
	return f
}

func hiddenFinding(i Idle) finding.Finding {
	s, by, k := i.Edit, i.By, i.Edit.Knob
	where := "on the one node that it is for"
	switch {
	case i.Nodes > 1 && s.on >= 0:
		where = fmt.Sprintf("here and on %d more nodes", i.Nodes-1)
	case i.Nodes > 1:
		where = fmt.Sprintf("on all %d nodes that it is for", i.Nodes)
	}
	f := finding.Finding{ID: "flags/no-effect", Severity: finding.Warn, Subject: subjectOf(s.Ref),
		Message: fmt.Sprintf("%s is %q here and does nothing, as %s says %q, which is stronger, %s",
			k.Name, s.Value, by.Ref, by.Value, where),
		Evidence: map[string]any{"knob": k.ID(), "value": s.Value, "by": by.Ref.String(), "place": by.Place.Name, "counts": by.Value, "nodes": i.Nodes},
		Fix:      fmt.Sprintf("take it out of %s, or out of here", by.Ref)}
	if by.Unknown {
		f.Message = fmt.Sprintf("%s is %q here and does nothing, as %s takes it from an object that is not in the input, and is stronger", k.Name, s.Value, by.Ref)
	}
	// What narrower places hide for the nodes of today still counts for one that joins.
	if k.Same(s.Value, by.Value) || slices.Index(scopes, by.Place.Scope) > slices.Index(scopes, s.Place.Scope) {
		f.Severity = finding.Info
	}
	return f
}

// overlaps finds FelixConfigurations of which one does nothing on a node, as an older one selects it too.
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
			Subject:  finding.Subject{Kind: "FelixConfiguration", Name: loser.GetName()},
			Message:  fmt.Sprintf("it does nothing at all on %s, which FelixConfiguration %s selects too and is older", some(names), winner.GetName()),
			Evidence: map[string]any{"nodes": len(names), "by": winner.GetName()}, Fix: "let the two selectors pick different nodes"})
	}
	return found
}

// some names a few of many.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// conflicts finds values of a knob that do not go with those of others, where both components are there.
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
			found = append(found, finding.Finding{ID: "flags/conflict", Severity: finding.Warn, Subject: finding.Subject{Kind: "Flag", Name: k.ID()},
				Message:  fmt.Sprintf("%s is %s and %s is %s on %s: %s", k.ID(), v.one, other.ID(), v.two, some(nodes[v]), c.Why),
				Evidence: map[string]any{"with": other.ID(), "nodes": len(nodes[v])}, Fix: "theseus flags explain " + k.ID()})
		}
	}
	return found
}

func (c Coupling) clashes(k, other *Knob, one, two string) bool {
	if c.When != "" && !strings.EqualFold(c.When, one) && !k.Same(c.When, one) {
		return false
	}
	is := func(value string) bool {
		return strings.EqualFold(value, two) || other.Same(value, two) || other.Places[0].Scope == Pool && slices.Contains(poolValues(two), value)
	}
	return len(c.Needs) > 0 && !slices.ContainsFunc(c.Needs, is) || slices.ContainsFunc(c.Not, is)
}

// poolValues are the values of a knob that pools have, each for itself.
func poolValues(text string) []string {
	var values []string
	for one := range strings.SplitSeq(text, ",") {
		_, value, _ := strings.Cut(one, "=")
		values = append(values, value)
	}
	return values
}

// runs reports whether anything of a component is in the input.
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

// LintEdit says what an edit does that whoever makes it should know: that it does nothing, that it is not taken, or
// that it acts on many nodes in the same moment.
func LintEdit(d Difference) []finding.Finding {
	var found []finding.Finding
	for _, i := range d.Idle {
		f := hiddenFinding(i)
		if f.Severity == finding.Warn {
			f.Severity = finding.Block // an edit that does nothing is no edit
		}
		found = append(found, f)
	}
	for _, p := range d.Processes {
		if p.AtOnce < 2 {
			continue
		}
		found = append(found, finding.Finding{ID: "flags/restarts-all", Severity: finding.Warn, Subject: finding.Subject{Kind: "Process", Name: p.Name},
			Message:  fmt.Sprintf("%s %s on %d of %d nodes at the same moment", p.Name, p.Effect.words(), p.AtOnce, d.Nodes),
			Evidence: map[string]any{"atOnce": p.AtOnce, "nodes": d.Nodes}, Fix: "set it for some nodes first (theseus flags explain FLAG shows the narrowest place), and for all at the end"})
	}
	sorted(found)
	return found
}

// words are what happens to a process, or to what hangs on it.
func (e Effect) words() string {
	return map[Effect]string{Live: "takes it as it runs", Restart: "starts again", Recreate: "is made anew",
		Workloads: "starts again, and pods have to be made anew,"}[e]
}
