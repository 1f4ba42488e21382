package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/adopt"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Runbook is the plan as text for people: what moves, in which order, what is done in every step, and how
// each is taken back.
func Runbook(p *Plan) string {
	b := &strings.Builder{}
	summary(b, p)
	if p.Mirror != nil {
		moved(b, p)
		given(b, p)
	}
	if p.OnNodes() {
		nodeWaves(b, p)
		workloads(b, p)
	}
	notes(b, p.Findings)
	chapter := ""
	past := false
	for i := range p.Steps {
		s := &p.Steps[i]
		past = past || s.NoReturn
		if s.NoReturn {
			b.WriteString("\n======== POINT OF NO RETURN: until here everything can be taken back, from here on nothing can ========\n")
		}
		if now := chapterOf(s); now != chapter {
			fmt.Fprintf(b, "\n== %s ==\n", now)
			chapter = now
		}
		describeStep(b, i+1, s)
		describeUndo(b, s, past)
	}
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

func summary(b *strings.Builder, p *Plan) {
	fmt.Fprintf(b, "Plan %s\n", p.Name)
	if p.Upgrade != nil {
		fmt.Fprintf(b, "%s from %s to %s, strategy %s: %s.\n", p.Source.CNI, p.Upgrade.From, p.Upgrade.To, p.Strategy, p.Reason)
	} else if p.Reflectors != nil {
		fmt.Fprintf(b, "BGP of %s from %s to %s, strategy %s: %s.\n", p.Source.CNI, p.From(), p.To(), p.Strategy, p.Reason)
	} else if p.Pools != nil {
		fmt.Fprintf(b, "Pods of %s from %s (%s) to %s (%s), strategy %s: %s.\n", p.Source.CNI, p.From(), strings.Join(p.Source.PodCIDRs, ", "),
			p.To(), strings.Join(p.Target.PodCIDRs, ", "), p.Strategy, p.Reason)
		if p.Pools.Stays {
			fmt.Fprintf(b, "%s stays for the addresses of the nodes' tunnels, and gives none to pods any more.\n", p.From())
		}
	} else if p.Encapsulation != nil {
		fmt.Fprintf(b, "Packets of %s between nodes (IPPool %s, %s) from %s to %s, strategy %s: %s.\n", p.Source.CNI, p.Encapsulation.Pool,
			strings.Join(p.Encapsulation.Ranges, ", "), p.From(), p.To(), p.Strategy, p.Reason)
		if p.Encapsulation.Reserves != "" {
			fmt.Fprintf(b, "The IPReservation %s stays: it keeps the addresses that the nodes' tunnels had from pods, as connections of nodes may go on with them.\n", p.Encapsulation.Reserves)
		}
	} else if p.Rollout != nil {
		fmt.Fprintf(b, "%s on %s, strategy %s: %s.\n", p.Rollout, network(p.Source.CNI, p.Source.Version, p.Source.PodCIDRs), p.Strategy, p.Reason)
	} else if p.Mirror != nil {
		fmt.Fprintf(b, "To the mirror, and home when the original is changed: %s of %s, strategy %s: %s.\n", cluster.Count(len(p.Mirror.Names.Moves), "name"),
			strings.Join(p.Mirror.Copy.Namespaces, ", "), p.Strategy, p.Reason)
		if p.OnNodes() {
			fmt.Fprintf(b, "Meanwhile the original goes from %s to %s, by the strategy %s: %s.\n", network(p.Source.CNI, p.Source.Version, p.Source.PodCIDRs),
				network(p.Target.CNI, p.Target.Version, p.Target.PodCIDRs), p.Mirror.Switch.Strategy, p.Size())
		}
		fmt.Fprintf(b, "%s, about %s. Made %s by theseus %s.\n", cluster.Count(len(p.Steps), "step"), p.Estimate.About(), p.MadeAt.UTC().Format(time.RFC3339), p.Theseus)
		if p.OnNodes() {
			byTag(b, p.Change.AgentImage)
		}
		nodePool(b, p)
		return
	} else {
		fmt.Fprintf(b, "From %s to %s, strategy %s: %s.\n", network(p.Source.CNI, p.Source.Version, p.Source.PodCIDRs),
			network(p.Target.CNI, p.Target.Version, p.Target.PodCIDRs), p.Strategy, p.Reason)
	}
	fmt.Fprintf(b, "%s, %s, about %s, by what such steps took in the lab. Made %s by theseus %s.\n", p.Size(), cluster.Count(len(p.Steps), "step"),
		p.Estimate.About(), p.MadeAt.UTC().Format(time.RFC3339), p.Theseus)
	fates(b, p)
	policyGoes(b, p)
	neverRun(b, p)
	byTag(b, p.Change.AgentImage)
	nodePool(b, p)
	if p.Rollout != nil && p.Rollout.Origin != nil {
		decided(b, p)
	}
}

// fates says of a plan that adopts pods how many it does not adopt, and why.
func fates(b *strings.Builder, p *Plan) {
	if p.Strategy != adopt.Name {
		return
	}
	kept, anew, why := 0, 0, ""
	for _, w := range p.Workloads {
		pods := 0
		for _, names := range w.Pods {
			pods += len(names)
		}
		switch w.Treatment {
		case "adopt":
			kept += pods
		case "move":
			anew += pods
			why = cmp.Or(why, w.Note)
		}
	}
	why, _, _ = strings.Cut(why, ";")
	again := "is"
	if anew > 1 {
		again = "are"
	}
	switch {
	case anew == 0:
	case kept == 0:
		fmt.Fprintf(b, "No pod keeps running: none can be adopted here, and %s %s created again, the first because %s.\n", cluster.Count(anew, "pod"), again, why)
	default:
		fmt.Fprintf(b, "Of %s, %d keep running with their addresses and connections; %d cannot be adopted and %s created again, the first because %s.\n",
			cluster.Count(kept+anew, "pod"), kept, anew, again, why)
	}
}

// policyGoes says when what enforces NetworkPolicy beside the old network goes.
func policyGoes(b *strings.Builder, p *Plan) {
	if p.Source.PolicyAgent == nil {
		return
	}
	if n, s := goes(p, *p.Source.PolicyAgent); s != nil {
		fmt.Fprintf(b, "NetworkPolicy is enforced by %s today. It goes with %s, in step %d [%s]; %s enforces it for the pods that are on %s.\n",
			joint.Name(*p.Source.PolicyAgent), p.Source.CNI, n, s.ID, p.Target.CNI, p.Target.CNI)
	}
}

// goes is the step that deletes an object; nil where none does.
func goes(p *Plan, ref step.Ref) (int, *step.Step) {
	for i := range p.Steps {
		for _, action := range p.Steps[i].Actions {
			if action.Op == step.Delete && action.Ref != nil && *action.Ref == ref {
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
			fmt.Fprintf(b, "Never run: %s.\n", f.Message)
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
	fmt.Fprintf(b, "Warning: the agent's image %s is named by a tag. Whoever may push to its registry decides what runs as root on every\n"+
		"node, now and whenever an agent starts. Name it by digest: --agent-image NAME@sha256:DIGEST.\n", image)
}

// nodePool says how nodes come and go, where they do.
func nodePool(b *strings.Builder, p *Plan) {
	if p.Surge == nil {
		return
	}
	fmt.Fprintf(b, "Nodes come by %q and go by %q, which the program that applies the plan runs on its own machine, without a shell.\n"+
		"A node that is removed does not come back: %s/remove is the point of no return. What fails after it stops for a person, both\n"+
		"networks joined and every pod on one of them; what failed is mended and `theseus resume` goes on.\n",
		p.Surge.AddHook, p.Surge.RemoveHook, p.Surge.Waves[0].Name)
}

// decided says what a flag set says about nodes.
func decided(b *strings.Builder, p *Plan) {
	origin := p.Rollout.Origin
	gets, changes := map[string]int{}, map[string]int{}
	for _, turn := range origin.Turns {
		gets[turn.Value]++
		if turn.Changes() {
			changes[turn.Value]++
		}
	}
	fmt.Fprintf(b, "The flag %s says, evaluated for every node when the plan was made (%s), and kept in it:\n", origin.Flag, p.Flags.Algorithm)
	for _, value := range slices.Sorted(maps.Keys(gets)) {
		fmt.Fprintf(b, "  %s=%s on %d of %d nodes, which is new to %d\n", p.Rollout.Flag, value, gets[value], len(origin.Turns), changes[value])
	}
	if p.Rollout.Value == "" {
		b.WriteString("Nodes that differ from the cluster's value keep one of their own. It becomes the cluster's once the flag says one thing of all nodes.\n")
	}
}

func network(name, version string, cidrs []string) string {
	return strings.TrimSpace(name+" "+version) + " (" + strings.Join(cidrs, ", ") + ")"
}

func nodeWaves(b *strings.Builder, p *Plan) {
	b.WriteString("\nWaves, one after another:\n")
	for i, wave := range p.Waves {
		note := ""
		if i == 0 {
			note = " (canary)"
		}
		if p.Surge != nil && i < len(p.Surge.Waves) {
			fmt.Fprintf(b, "  %s%s: %s replaced by %s\n", wave.Name, note, shortList(wave.Nodes), shortList(p.Surge.Waves[i].New))
			continue
		}
		fmt.Fprintf(b, "  %s%s: %s\n", wave.Name, note, shortList(wave.Nodes))
	}
}

func workloads(b *strings.Builder, p *Plan) {
	if p.InPlace() {
		b.WriteString("\nPods keep running, with their addresses and connections.\n")
		return
	}
	b.WriteString("\nWhat happens to every workload:\n")
	for _, w := range p.Workloads {
		fmt.Fprintf(b, "  %s %s/%s: ", w.Kind, w.Namespace, w.Name)
		if w.Treatment != "move" && w.Treatment != "adopt" {
			n, s := goes(p, step.Ref{APIVersion: "apps/v1", Kind: w.Kind, Namespace: w.Namespace, Name: w.Name})
			if s == nil {
				fmt.Fprintf(b, "stays as it is, %s\n", w.Note)
			} else {
				fmt.Fprintf(b, "is deleted in step %d [%s], with %s\n", n, s.ID, p.Source.CNI)
			}
			continue
		}
		var moves []string
		for _, wave := range p.Waves {
			if pods := w.Pods[wave.Name]; len(pods) > 0 {
				moves = append(moves, wave.Name+": "+shortList(pods))
			}
		}
		fmt.Fprintf(b, "%s (%s)", map[string]string{"move": "moves", "adopt": "is adopted"}[w.Treatment], strings.Join(moves, "; "))
		if w.Budget != "" {
			fmt.Fprintf(b, ", within budget %s", w.Budget)
		}
		fmt.Fprintf(b, "; %s\n", w.Note)
	}
}

func chapterOf(s *step.Step) string {
	head, _, _ := strings.Cut(s.ID, "/")
	switch head {
	case "prepare":
		return "Prepare"
	case "joint":
		return "Both networks on every node"
	case "switch", "verify":
		return "Move"
	case "remove":
		return "Remove the source"
	case "upgrade":
		return "What both versions work with"
	case "owner":
		return "Who makes the agents"
	case "before":
		return "What goes before the agents"
	case "after":
		return "What follows the agents"
	case "bgp":
		return "Reflectors"
	case "pool":
		return "The pools"
	case "pin":
		return "Straight between nodes"
	case "encapsulation":
		return "The encapsulation"
	case "follow", "unpin":
		return "The network's own routes"
	case "fold":
		return "Fold back"
	case "finish":
		return "Finish"
	case "cloud", "names", "freeze", "copy", "certificates":
		return "The mirror"
	case "over":
		return "Names to the mirror"
	case "change":
		return "Change the original"
	case "whole", "home":
		return "Names home"
	case "thaw", "teardown", "unname", "uncloud":
		return "Clean up"
	}
	if strings.HasSuffix(s.ID, "/switch") && s.Gate != nil && s.Gate.Compares() {
		return "Switch: " + head
	}
	if slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Op == step.Restart }) {
		return "Upgrade: " + head
	}
	return "Move: " + head
}

func describeStep(b *strings.Builder, n int, s *step.Step) {
	fmt.Fprintf(b, "\n%d. %s [%s, about %s]\n", n, s.Title, s.ID, s.Estimate.About())
	if s.Why != "" {
		fmt.Fprintf(b, "   Why: %s\n", s.Why)
	}
	for _, condition := range phrases(s.Before) {
		fmt.Fprintf(b, "   Before: %s\n", condition)
	}
	for _, line := range folded(s.Actions) {
		fmt.Fprintf(b, "   - %s\n", line)
	}
	for _, condition := range phrases(s.After) {
		fmt.Fprintf(b, "   After: %s\n", condition)
	}
	if s.Gate != nil {
		watch := "on two fresh reports of every node"
		if s.Gate.Bake > 0 {
			watch = "watched for " + s.Gate.Bake.About()
		}
		lost := "no probe lost"
		if s.Gate.Args != nil {
			lost = fmt.Sprintf("at most %d requests lost", s.Gate.MaxLost)
		} else if s.Gate.Compares() {
			lost = fmt.Sprintf("changed nodes lose no more than the others (an e-process), no gap above %s, nothing leaked", time.Duration(s.Gate.MaxGap))
		}
		if s.Gate.MaxLost > 0 && s.Gate.Args == nil {
			lost = fmt.Sprintf("at most %d probes lost, no gap above %s", s.Gate.MaxLost, time.Duration(s.Gate.MaxGap))
		}
		if s.Gate.Sessions != nil {
			lost += ", BIRD's sessions and routes whole on every node"
		}
		fmt.Fprintf(b, "   Gate: %s; %s, %s\n", s.Gate.Title, lost, watch)
	}
}

func describeUndo(b *strings.Builder, s *step.Step, past bool) {
	for _, line := range folded(s.Undo) {
		fmt.Fprintf(b, "   Undo: %s\n", line)
	}
	if past && s.Alone {
		b.WriteString("   Where it fails: this step alone is taken back, and a person is asked\n")
	}
	if past || len(s.Undo) > 0 {
		return
	}
	for _, kind := range []struct{ verb, undo string }{
		{mirror.AddNames, "give every certificate the names that it had"},
		{mirror.Cloud, "take away, last first, what was not there before"},
		{mirror.Freeze, "thaw; a freeze that was in force before stays"},
		{mirror.Copy, "nothing; what was copied stays, and nobody asks for it"},
		{shift.Swap, "put every record back that is still as the plan left it, and see it everywhere; one that somebody else changed is named"},
	} {
		if slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Verb == kind.verb }) {
			fmt.Fprintf(b, "   Undo: %s\n", kind.undo)
			return
		}
	}
	if slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Op == step.Apply }) {
		b.WriteString("   Undo: put every object back as it was found, or delete it where there was none, last first\n")
		return
	}
	if i := slices.IndexFunc(s.Actions, func(a step.Action) bool { return a.Op == step.Evict }); i >= 0 {
		back := "their node is switched back"
		if s.Actions[i].Pods.LeaveDaemons {
			back = "the new nodes are shut again"
		}
		fmt.Fprintf(b, "   Undo: nothing of its own; pods move back when %s\n", back)
	}
}

// folded shortens runs of up to three actions that are done to one object or node after another: the first
// time, and how many more.
func folded(actions []step.Action) []string {
	var lines []string
	for len(actions) > 0 {
		period, times := 1, repeats(actions, 1)
		for p := 2; p <= 3 && times <= 3; p++ {
			if n := repeats(actions, p); n > 3 {
				period, times = p, n
			}
		}
		shown := period
		if times <= 3 {
			shown = period * times
		}
		for _, action := range actions[:shown] {
			lines = append(lines, action.Title)
		}
		if times > 3 {
			rest := more(times - 1)
			if period > 1 {
				rest = fmt.Sprintf("; these %d for %d more", period, times-1)
			}
			lines[len(lines)-1] += rest
		}
		actions = actions[period*times:]
	}
	return lines
}

// repeats counts how often the first actions, as many as period, are done again and again.
func repeats(actions []step.Action, period int) int {
	n := period
	for n < len(actions) && alike(&actions[n-period], &actions[n]) {
		n++
	}
	return n / period
}

// more says how many there are beside one that is named.
func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more like it", n)
}

func alike(a, b *step.Action) bool {
	if a.Op != b.Op || a.Verb != b.Verb {
		return false
	}
	switch a.Op {
	case step.Apply:
		return a.Object.GetKind() == b.Object.GetKind()
	case step.Delete, step.Patch:
		return a.Ref.Kind == b.Ref.Kind
	case step.Wait:
		return a.Condition.Kind == b.Condition.Kind
	case step.Evict:
		return a.Pods.LeaveEnding == b.Pods.LeaveEnding
	}
	return true
}

// phrases says conditions in words; of many alike, the first and how many more.
func phrases(conditions []step.Condition) []string {
	var lines []string
	for i := 0; i < len(conditions); {
		run := 1
		for i+run < len(conditions) && conditions[i+run].Kind == conditions[i].Kind && conditions[i].Kind != step.PodReady {
			run++
		}
		lines = append(lines, phrase(conditions[i])+more(run-1))
		i += run
	}
	return lines
}

func phrase(c step.Condition) string {
	switch c.Kind {
	case step.Established:
		return c.Ref.Name + " serves"
	case step.Rolled:
		return c.Ref.String() + " is ready everywhere"
	case step.Renders:
		return "new pods of " + c.Ref.String() + " are made from " + c.Version
	case step.Reports:
		var says []string
		for _, kind := range slices.Sorted(maps.Keys(c.Reports)) {
			says = append(says, kind+"="+c.Reports[kind])
		}
		return c.Ref.String() + " says " + strings.Join(says, " and ")
	case step.Has:
		return fmt.Sprintf("%s has %s", c.Ref, c.Fields)
	case step.Held:
		return "pods of " + c.Selector + " cannot be deleted, by " + c.Ref.String()
	case step.PodReady:
		return "the pod of " + c.Selector + " on " + c.Node + " is ready"
	case step.NodeReady:
		return "node " + c.Node + " is Ready"
	case step.NoPods:
		if c.Node == "" {
			return "no pod of the cluster has an address in " + strings.Join(c.CIDRs, ", ")
		}
		text := "no pod of " + c.Node + " has an address in " + strings.Join(c.CIDRs, ", ")
		if c.LeaveDaemons {
			text += ", but for those of DaemonSets"
		}
		if c.LeaveEnding {
			text += ", but for those that are ending"
		}
		return text
	case step.PodGone:
		return "no pod of " + c.Selector + " is left"
	case step.Gone:
		return c.Ref.String() + " is gone"
	case step.NodesAmong:
		return fmt.Sprintf("no node has joined since the plan was made for %d", len(c.Nodes))
	}
	return string(c.Kind)
}

func shortList(items []string) string {
	if len(items) > 8 {
		return strings.Join(items[:6], ", ") + fmt.Sprintf(" and %d more", len(items)-6)
	}
	return strings.Join(items, ", ")
}
