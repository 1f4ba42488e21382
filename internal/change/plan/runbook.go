package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/step"
)

// Runbook is the plan as text for people: what moves, in which order, what is done in every step, and how
// each is taken back.
func Runbook(p *Plan) string {
	b := &strings.Builder{}
	summary(b, p)
	b.WriteString(signal.Demands(p.Change.SLO))
	words(b, p, of(p).Words.Scope)
	if p.OnNodes() {
		nodeWaves(b, p)
		workloads(b, p)
	}
	notes(b, p.Findings)
	describeSteps(b, p)
	return b.String()
}

// Summary is the head of the runbook: what changes and how, how large the plan is, and what to know about it.
func Summary(p *Plan) string {
	b := &strings.Builder{}
	summary(b, p)
	b.WriteString(signal.Demands(p.Change.SLO))
	return b.String()
}

// notes are what was found and is no obstacle. What differs in the name of its subject alone is said once.
func notes(b *strings.Builder, findings []finding.Finding) {
	var order []string
	same := map[string][]finding.Finding{}
	for _, f := range findings {
		if f.Severity == finding.Info || f.ID == NeverRun {
			continue
		}
		key := f.ID + f.Subject.Kind + strings.ReplaceAll(f.Message, f.Subject.Name, "")
		if same[key] == nil {
			order = append(order, key)
		}
		same[key] = append(same[key], f)
	}
	for _, key := range order {
		first := same[key][0]
		fmt.Fprintf(b, "Note (%s): %s%s: %s\n", first.ID, first.Subject, more(len(same[key])-1), first.Message)
	}
}

// more says how many there are besides one that is named.
func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more like it", n)
}

func summary(b *strings.Builder, p *Plan) {
	k := of(p)
	fmt.Fprintf(b, "Plan %s\n%s", p.Name, k.Words.Summary(p))
	made := p.MadeAt.UTC().Format(time.RFC3339)
	if k.Complete {
		fmt.Fprintf(b, "%s, about %s. Created %s by theseus %s.\n",
			cluster.Count(len(p.Steps), "step"), p.Estimate.About(), made, p.Theseus)
		if p.OnNodes() {
			byTag(b, p.Change.AgentImage)
		}
		words(b, p, k.Words.Nodes)
		return
	}
	fmt.Fprintf(b, "%s, %s, about %s (%s). Created %s by theseus %s.\n",
		p.Size(), cluster.Count(len(p.Steps), "step"), p.Estimate.About(), basis(p), made, p.Theseus)
	b.WriteString(onFailure(p) + stoppingPlaces(p))
	words(b, p, k.Words.Pods)
	policyGoes(b, p)
	neverRun(b, p)
	byTag(b, p.Change.AgentImage)
	words(b, p, k.Words.Nodes)
	words(b, p, k.Words.Notes)
}

// basis says on what a plan's estimates stand.
func basis(p *Plan) string {
	if n := len(p.EstimatedFrom); n > 0 {
		return "estimated from " + cluster.Count(n, "earlier run") + " of this cluster"
	}
	return "estimated from lab runs"
}

// onFailure says what follows when a step or its gate fails.
func onFailure(p *Plan) string {
	text := "If a step or its gate fails, Theseus undoes every step, in reverse order"
	if slices.ContainsFunc(p.Steps, func(s step.Step) bool { return s.Alone || s.Stop }) {
		text += ", unless the step says otherwise"
	}
	if slices.ContainsFunc(p.Steps, func(s step.Step) bool { return s.NoReturn }) {
		text += ". Below the point of no return, it stops and leaves the decision to you"
	}
	return text + ".\n"
}

// words writes what a kind says, if it says anything.
func words(b *strings.Builder, p *Plan, say func(*Plan) string) {
	if say != nil {
		b.WriteString(say(p))
	}
}

// policyGoes says when what enforces NetworkPolicy next to the old network goes.
func policyGoes(b *strings.Builder, p *Plan) {
	if p.Source.PolicyAgent == nil {
		return
	}
	if n, s := goes(p, *p.Source.PolicyAgent); s != nil {
		fmt.Fprintf(b, "NetworkPolicy: %s enforces it for pods on %s, until step %d [%s] removes both. %s "+
			"enforces it for pods on %s.\n",
			joint.Name(*p.Source.PolicyAgent), p.Source.Title(), n, s.ID, p.Target.Title(), p.Target.Title())
	}
}

// goes is the step that deletes an object; nil where none does.
func goes(p *Plan, ref step.Ref) (int, *step.Step) {
	for i := range p.Steps {
		for _, action := range p.Steps[i].Actions {
			if do, is := action.Do.(step.Delete); is && do.Ref != (step.Ref{}) && do.Ref == ref {
				return i + 1, &p.Steps[i]
			}
		}
	}
	return 0, nil
}

// neverRun repeats of the accepted findings those that say what Theseus was never run with.
func neverRun(b *strings.Builder, p *Plan) {
	for _, f := range p.Findings {
		if f.ID == NeverRun {
			fmt.Fprintf(b, "Never tested: %s.\n", f.Message)
		}
	}
}

// NeverRun is the check that says what Theseus was never run with.
const NeverRun = "cni/never-run"

// byTag warns of an image that is named by its tag alone.
func byTag(b *strings.Builder, image string) {
	if image == "" || strings.Contains(image, "@sha256:") {
		return
	}
	fmt.Fprintf(b, "Warning: the agent image %s is referenced by tag. Anyone who can push to its registry can "+
		"run code as root on every\n"+
		"node, now and whenever an agent starts. Reference it by digest: --agent-image NAME@sha256:DIGEST.\n", image)
}

func nodeWaves(b *strings.Builder, p *Plan) {
	b.WriteString("\nWaves, in order:\n" + atOnce(p))
	domains := p.Domains()
	for i, wave := range p.Waves {
		note := ""
		if i == 0 {
			note = " (canary)"
		}
		fmt.Fprintf(b, "  %s%s: %s", wave.Name, note, shortList(wave.Nodes))
		if others := p.Others(i); len(others) > 0 {
			fmt.Fprintf(b, " replaced by %s", shortList(others))
		}
		b.WriteString(atOnceIn(p, wave, domains) + "\n")
	}
}

func workloads(b *strings.Builder, p *Plan) {
	if p.InPlace() {
		b.WriteString("\nPods keep running, with their addresses and connections.\n")
		return
	}
	b.WriteString("\nWhat happens to every workload:\n")
	likely, unchanged := 0, 0 // likely ones move, or are adopted
	for _, w := range p.Workloads {
		name := fmt.Sprintf("  %s %s/%s: ", w.Kind, w.Namespace, w.Name)
		if w.Treatment != "move" && w.Treatment != "adopt" {
			n, s := goes(p, step.Ref{APIVersion: "apps/v1", Kind: w.Kind, Namespace: w.Namespace, Name: w.Name})
			if s != nil {
				fmt.Fprintf(b, "%sdeleted with %s in step %d [%s]\n", name, p.Source.Title(), n, s.ID)
			} else if unchanged++; unchanged <= mostWorkloads {
				fmt.Fprintf(b, "%sunchanged; %s\n", name, w.Note)
			}
			continue
		}
		if likely++; likely > mostWorkloads {
			continue
		}
		b.WriteString(name)
		var moves []string
		for _, wave := range p.Waves {
			if pods := w.Pods[wave.Name]; len(pods) > 0 {
				moves = append(moves, wave.Name+": "+shortList(pods))
			}
		}
		fmt.Fprintf(b, "%s (%s)", map[string]string{"move": "recreated", "adopt": "adopted"}[w.Treatment],
			strings.Join(moves, "; "))
		if w.Budget != "" {
			fmt.Fprintf(b, ", within PDB %s", w.Budget)
		}
		fmt.Fprintf(b, "; %s\n", w.Note)
	}
	var rest []string
	if n := likely - mostWorkloads; n > 0 {
		rest = append(rest, cluster.Count(n, "more workload")+" like these")
	}
	if n := unchanged - mostWorkloads; n > 0 {
		rest = append(rest, cluster.Count(n, "more unchanged workload"))
	}
	if len(rest) > 0 {
		fmt.Fprintf(b, "  %s. The plan file lists every workload, and its pods in each wave.\n",
			strings.Join(rest, ", "))
	}
}

// mostWorkloads is how many workloads that move or are adopted, and how many unchanged ones, a runbook lists one by
// one.
const mostWorkloads = 8

// chapters are the titles of runs of steps that plans of several kinds have, by their groups.
func chapters() map[string]string {
	all := map[string]string{
		"prepare": "Prepare", "joint": "Run both networks on every node", "switch": "Move",
		"verify": "Check that all pods have moved", "remove": "Remove the old network", "finish": "Finish",
	}
	for _, k := range kinds() {
		maps.Copy(all, k.Words.Chapters)
	}
	return all
}

func chapterOf(titles map[string]string, s *step.Step) string {
	if title, known := titles[s.Group]; known {
		return title
	}
	if s.Stop {
		return "Window " + strings.TrimPrefix(s.Group, "window-")
	}
	for _, k := range kinds() {
		if k.Words.Chapter == nil {
			continue
		}
		if word := k.Words.Chapter(s); word != "" {
			return word + ": " + s.Group
		}
	}
	return "Move: " + s.Group
}

func shortList(items []string) string {
	if len(items) > 8 {
		return strings.Join(items[:6], ", ") + fmt.Sprintf(" and %d more", len(items)-6)
	}
	return strings.Join(items, ", ")
}
