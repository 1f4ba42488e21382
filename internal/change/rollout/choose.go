package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/murmur3"
	"golang.org/x/mod/semver"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// dataplane is the flag that takes rules from one data plane to the other: the kernel shows that it took effect. Of
// other flags Felix says so itself.
const dataplane = "calico/nftablesMode"

func planes() map[string]string {
	return map[string]string{"Enabled": step.NFTables, "Disabled": step.IPTables}
}

// propose plans the rollout of a flag of the network in place, or returns a *kind.Refusal.
func propose(r *kind.Request) (*kind.Draft, error) {
	snapshot, change, options := r.Snapshot, r.Change, r.Options
	if err := surge.Unasked(change); err != nil {
		return nil, err
	}
	source, err := kind.InOrder(snapshot, r.Drivers)
	if err != nil {
		return nil, err
	}
	flag, env, coupled, err := flagFor(snapshot, source, change, options.Decided)
	var known *setting.Error
	if errors.As(err, &known) {
		return nil, &kind.Refusal{Message: known.Error(), Hint: known.Hint()}
	}
	if err != nil {
		return nil, err
	}
	if err := kind.NodesReady(snapshot, source); err != nil {
		return nil, err
	}
	if err := kind.AgentGiven(change); err != nil {
		return nil, err
	}
	if options.Decided != nil && len(change.WavePercents) > 0 {
		return nil, kind.Refuse("put the shares into the flag (fractional), and numbers of nodes into --waves, "+
			"such as 1,0",
			"the flag set decides which share of the nodes has the flag, so --waves cannot be shares")
	}
	changing, others := whoChanges(snapshot, &flag)
	waves, err := rolloutWaves(changing, change, flag.Field)
	if err != nil {
		return nil, err
	}
	nodes := time.Duration(len(snapshot.Nodes))
	p := kind.Begin(snapshot, change, options, Name,
		"the agent of each node reads the flag, so each node can get it and be measured before the next")
	p.Source, p.Target, p.Findings = *source, *source, append(slices.Clone(r.Findings), coupled...)
	if source.Untried != "" {
		p.Findings = append(p.Findings, untriedRollout(source))
	}
	p.Rollout = &kind.Rollout{Flag: flag.Field, Scoped: scopedNames(flag)}
	if flag.Template != nil {
		p.Retain = bgp.FromSnapshot(snapshot).Carried()
	}
	p.Steps = Steps(Input{Network: source, Change: change, Flag: flag, Waves: waves, Others: others, Within: p.Retain,
		Install: joint.InstallAgent(change.AgentImage, snapshot.Kubernetes, snapshot.APIServers,
			5*time.Minute+nodes*time.Second)})
	first := flag.Turns[changing.Nodes[0].Name]
	if flag.Value != nil {
		p.Rollout.Value = fmt.Sprint(flag.Value)
	} else if flag.Template != nil {
		p.Rollout.Value, p.Rollout.Env, p.Rollout.Was = fmt.Sprint(first.Own), env, fmt.Sprint(first.Was)
	}
	stem := strings.ToLower(flag.Field)
	if options.Decided != nil {
		origin := options.Decided.Origin
		origin.Turns = flag.Turns
		p.Rollout.Origin = &origin
	} else if p.Rollout.From, p.Rollout.To, p.Rollout.Says = first.From, first.To, first.Says; first.Moves() {
		stem = first.To
	}
	p.Waves = kind.WavesOf(waves)
	return &kind.Draft{Plan: p, Stem: source.CNI + "-to-" + stem, Pods: nil}, nil
}

// flagsOn refuses the rollout of a flag on a network of which no flags are known.
func flagsOn(source *cni.Installation) error {
	if source.CNI != "calico" && source.CNI != "cilium" {
		return kind.Refuse("flags are rolled out on Calico and Cilium", "this cluster is on %s", source.CNI)
	}
	return nil
}

// whoChanges are the nodes that change, as a cluster of their own, and the names of those that stay as they are.
func whoChanges(snapshot *cluster.Snapshot, flag *Flag) (changing *cluster.Snapshot, others []string) {
	changing = &cluster.Snapshot{}
	for _, node := range snapshot.Nodes {
		if flag.Turns[node.Name].Changes() {
			changing.Nodes = append(changing.Nodes, node)
		} else {
			others = append(others, node.Name)
		}
	}
	return changing, others
}

// flagFor is the flag that a change asks for, with what the cluster has of it. It refuses settings that would override
// the flag or make it a no-op, and notes related settings.
func flagFor(snapshot *cluster.Snapshot, source *cni.Installation, change v1alpha1.ChangeSpec,
	decided *kind.Decided) (flag Flag, env string, found []finding.Finding, err error) {
	if change.Dataplane != "" && change.Flag != "" {
		return flag, "", nil, kind.Refuse("make two plans, one after the other",
			"a data plane and a flag cannot be changed in one plan")
	}
	if err := flagsOn(source); err != nil {
		return flag, "", nil, err
	}
	agent := snapshot.DaemonSet(source.Agent.Namespace, source.Agent.Name)
	if owner := metav1.GetControllerOf(agent); owner != nil {
		return flag, "", nil, kind.Refuse("change it there: theseus does not change what an operator writes back",
			"%s belongs to %s %s", source.Agent, owner.Kind, owner.Name)
	}
	fleet := setting.Read(snapshot, nil)
	k, values, err := asked(fleet, source.CNI, change, decided)
	if err != nil {
		return flag, "", nil, err
	}
	if err := fieldThere(snapshot, source, k); err != nil {
		return flag, "", nil, err
	}
	flag = Flag{Field: k.Name, Container: agent.Name, Turns: map[string]Turn{}, Scoped: map[string]bool{}}
	t := &turning{agent: agent, fleet: fleet, knob: k, objects: holders(snapshot, agent.Namespace),
		decided: decided != nil, base: fleet.Value(k, "").Value, own: map[string]setting.Write{}}
	if source.CNI == "cilium" {
		flag.Container, flag.Always = setting.CiliumAgent, true
		if t.cilium, err = ciliumSettled(snapshot, fleet, agent, k); err != nil {
			return flag, "", nil, err
		}
	}
	for _, node := range fleet.Nodes() {
		if flag.Turns[node], err = t.turn(node, cmp.Or(values[node], t.base)); err != nil {
			return flag, "", nil, err
		}
		flag.Parameter, flag.Scoped[node] = t.parameter, t.stays(t.own[node])
	}
	for _, value := range distinct(flag.Turns) {
		found = append(found, coupled(fleet, k, value)...)
	}
	if t.env != "" {
		flag.Template = t.template(flag.Turns[fleet.Nodes()[0]])
	}
	return flag, t.env, found, t.whole(&flag)
}

// holders are the objects that flags are written in, by kind, namespace and name.
func holders(snapshot *cluster.Snapshot, namespace string) map[string]unstructured.Unstructured {
	all := map[string]unstructured.Unstructured{}
	for _, object := range append(snapshot.Calico("FelixConfiguration"), snapshot.OtherOf("cilium.io", nodeConfig)...) {
		all[step.RefOf(&object).String()] = object
	}
	if config := snapshot.ConfigMap(namespace, ciliumConfig); config != nil {
		data := map[string]any{}
		for key, value := range config.Data {
			data[key] = value
		}
		ref := step.Ref{Kind: "ConfigMap", Namespace: namespace, Name: ciliumConfig}
		all[ref.String()] = unstructured.Unstructured{Object: map[string]any{"data": data}}
	}
	return all
}

// distinct are the values that nodes have at the end.
func distinct(turns map[string]Turn) []string {
	values := map[string]bool{}
	for _, turn := range turns {
		values[turn.Value] = true
	}
	return slices.Sorted(maps.Keys(values))
}

// asked finds the flag in the catalogue, and its value for every node. It has to be one of the network in place.
func asked(fleet *setting.Fleet, network string, change v1alpha1.ChangeSpec, decided *kind.Decided) (*setting.Knob,
	map[string]string, error) {
	name, value, whole := strings.Cut(change.Flag, "=")
	if change.Dataplane != "" {
		settings, err := fleet.Catalogue().Dataplane(change.Dataplane)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range settings {
			k, ok := fleet.Catalogue().Get(s.Knob)
			if s.Knob == dataplane || ok && strings.EqualFold(fleet.Value(k, "").Value, s.Value) {
				continue
			}
			if ok {
				if err := provable(fleet, k, s.Value); err != nil {
					return nil, nil, err
				}
			}
			return nil, nil, kind.Refuse("change that first, with a separate plan",
				"%s needs %s=%s, which is not set yet", change.Dataplane, s.Knob, s.Value)
		}
		last := settings[len(settings)-1]
		name, value, whole = last.Knob, last.Value, true
	}
	values := map[string]string{}
	switch {
	case decided != nil:
		name, values = decided.Knob, decided.Values
	case !whole || value == "":
		return nil, nil, kind.Refuse("write it as nftablesMode=Enabled, or let a flag set decide: theseus flags "+
			"rollout --flags SOURCE", "%q gives no value", change.Flag)
	default:
		for _, node := range fleet.Nodes() {
			values[node] = value
		}
	}
	k, err := fleet.Catalogue().Find(name)
	if err != nil {
		return nil, nil, err
	}
	if k.Component != network {
		return nil, nil, kind.Refuse("theseus flags explain "+k.ID(), "%s is a flag of %s, and this cluster is on %s",
			k.Name, k.Component, network)
	}
	for _, value := range slices.Compact(slices.Sorted(maps.Values(values))) {
		if value == "" {
			continue
		}
		if err := k.Check(value); err != nil && k.Component == "calico" {
			return nil, nil, kind.Refuse("the agent would ignore it and use "+k.Default+", without an error",
				"%s=%s: %v", k.Name, value, err)
		} else if err != nil {
			return nil, nil, kind.Refuse(k.BadValue, "%s=%s: %v", k.Name, value, err)
		}
		if err := provable(fleet, k, value); err != nil {
			return nil, nil, err
		}
	}
	return k, values, nil
}

// provable says why a flag cannot be rolled out: it has no place of its own for a node, needs more than that Felix
// starts again, or nothing would show that it took effect.
func provable(fleet *setting.Fleet, k *setting.Knob, value string) error {
	if k.ID() == dataplane {
		return nil
	}
	if k.ID() == "calico/bpfEnabled" {
		return bpf(fleet)
	}
	if k.Component == "cilium" {
		return provableOnCilium(k, value)
	}
	w, err := fleet.Write(k, setting.Aim{Scope: setting.Node, Node: "NODE"}, value)
	if err != nil {
		return err
	}
	if w.Ref.Kind != "FelixConfiguration" || w.Place.Effect != setting.Restart {
		return kind.Refuse("theseus flags explain "+k.ID(),
			"%s is set in %s, which takes effect by %s: Theseus cannot roll that out yet",
			k.ID(), w.Ref.Kind, w.Place.Effect)
	}
	if _, _, ok := k.Said(value); !ok {
		return kind.Refuse("theseus flags explain "+k.ID(),
			"Theseus cannot verify %s on a node, so it does not roll it out", k.ID())
	}
	return nil
}

// nftablesSince is the release that brought nftablesMode (Calico's release notes of v3.29).
const nftablesSince = "v3.29"

// fieldThere refuses a field that the release in place does not have, or its definition: the API server would drop it
// without a word, and Felix would never hear of it.
func fieldThere(snapshot *cluster.Snapshot, source *cni.Installation, k *setting.Knob) error {
	const upgrade = "upgrade the network first, with its CRDs: theseus plan --manifest FILE"
	if k.ID() == dataplane && semver.IsValid(source.Version) &&
		semver.Compare(semver.MajorMinor(source.Version), nftablesSince) < 0 {
		return kind.Refuse(upgrade, "%s %s has no %s: it came with %s", source.CNI,
			source.Version, k.Name, nftablesSince)
	}
	for _, place := range k.Places {
		field, inSpec := strings.CutPrefix(place.Path, "spec.")
		if place.Kind != "FelixConfiguration" || !inSpec || strings.Contains(field, ".") {
			continue
		}
		for _, definition := range snapshot.OtherOf("apiextensions.k8s.io", "CustomResourceDefinition") {
			defined, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
			versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
			for _, version := range versions {
				fields, _, _ := unstructured.NestedMap(asMap(version), "schema", "openAPIV3Schema",
					"properties", "spec", "properties")
				if _, there := fields[field]; defined == place.Kind && len(fields) > 0 && !there {
					return kind.Refuse(upgrade, "the CRD %s lacks %s: the API server would drop the field silently",
						definition.GetName(), place.Path)
				}
			}
		}
	}
	return nil
}

func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// NotRolledOut finds changes of flags that Theseus does not roll out, and says why: made in another way, they act at
// once, and unmeasured.
func NotRolledOut(fleet *setting.Fleet, changes []setting.NewValue) []finding.Finding {
	var found []finding.Finding
	for _, c := range changes {
		k, err := fleet.Catalogue().Find(c.Knob)
		if err != nil || c.To == "" || k.Component != "calico" && k.Component != "cilium" {
			continue
		}
		err = provable(fleet, k, c.To)
		if err == nil {
			continue
		}
		f := finding.Finding{ID: "flags/not-rolled-out", Severity: finding.Warn,
			Subject: finding.Subject{Kind: "Flag", Name: k.ID()},
			Message: "theseus flags rollout refuses it: " + err.Error(), Fix: "theseus flags explain " + k.ID()}
		if refused, ok := errors.AsType[*kind.Refusal](err); ok {
			f.Fix = refused.Hint
		}
		found = append(found, f)
	}
	return found
}

// bpfKernel is the first kernel that Calico's eBPF data plane runs on.
var bpfKernel = [2]int{5, 10}

// bpf says why the eBPF data plane is not switched on.
func bpf(fleet *setting.Fleet) error {
	for _, name := range fleet.Nodes() {
		var have [2]int
		kernel := fleet.Kernel(name)
		if n, _ := fmt.Sscanf(kernel, "%d.%d", &have[0], &have[1]); n == 2 &&
			slices.Compare(have[:], bpfKernel[:]) < 0 {
			return kind.Refuse("give these nodes a newer kernel first",
				"%s has the kernel %s: Calico's eBPF data plane needs %d.%d", name, kernel, bpfKernel[0], bpfKernel[1])
		}
	}
	return kind.Refuse("theseus flags explain calico/bpfEnabled", "the eBPF data plane serves Services itself, so "+
		"kube-proxy would have to be removed node by node, which Theseus cannot do yet")
}

// turning works out what nodes have before and after.
type turning struct {
	fleet  *setting.Fleet
	knob   *setting.Knob
	cilium *onCilium // nil on Calico
	// own are nodes' own edits, and objects those that there are to be edited, by kind, namespace and name.
	own     map[string]setting.Write
	objects map[string]unstructured.Unstructured
	// decided: a flag set decides, so values of nodes' own are its to change.
	decided bool
	// base is the cluster's value.
	base      string
	parameter string
	// agent is the agents' DaemonSet, and env its variable where that holds the flag.
	agent *appsv1.DaemonSet
	env   string
}

// turn demands that nothing overrides a value of the node's own, and says how the node gets its value.
func (t *turning) turn(node, value string) (Turn, error) {
	k := t.knob
	none, in := Turn{}, t.fleet.Value(k, node)
	w, err := t.edit(node, value)
	if err != nil {
		return none, err
	}
	t.own[node] = w
	if by := t.fleet.Beaten(k, node, w); by != nil && by.Place.Env != "" && k.ID() != dataplane && t.cilium == nil {
		return t.inEnvironment(by, in, value)
	} else if by != nil {
		return none, kind.Refuse("remove it there first",
			"%s=%s in %s overrides every %s: the flag would have no effect on %s",
			cmp.Or(by.Place.Env, by.Place.Argument, k.Name), by.Value, by.Ref, w.Ref.Kind, node)
	}
	set := in.Hidden
	if in.By != nil {
		set = append(slices.Clone(set), in.By)
	}
	for _, by := range set {
		if by.Place.Scope != setting.Cluster && (!t.decided || by.Ref.Kind != w.Ref.Kind || by.Ref.Name != w.Ref.Name) {
			return none, kind.Refuse("remove it there first, finish the change that was begun by hand, or let a "+
				"flag set "+
				"decide about nodes: theseus flags rollout --flags SOURCE",
				"%s has a value of its own for %s: %s", by.Ref, k.Name, by.Value)
		}
	}
	turn := Turn{Was: t.held(w)[k.Name]}
	switch {
	case k.Same(in.Value, value):
		turn.Own = turn.Was
	case !t.decided || !k.Same(value, t.base):
		turn.Own = w.Value
	}
	turn.Value = value
	if w.Value != nil {
		turn.Value = fmt.Sprint(w.Value)
	}
	return turn, t.between(in, value, &turn)
}

// edit gives a node a value of its own.
func (t *turning) edit(node, value string) (setting.Write, error) {
	if t.cilium != nil {
		return t.config(node, value)
	}
	return t.fleet.Write(t.knob, setting.Aim{Scope: setting.Node, Node: node}, value)
}

// held is the existing content in addition to that of an edit.
func (t *turning) held(w setting.Write) map[string]any {
	object, fields := t.objects[w.Ref.String()], w.Fields()
	values, _, _ := unstructured.NestedMap(object.Object, fields[:len(fields)-1]...)
	return values
}

// stays says whether a node's own object is there for something else too.
func (t *turning) stays(w setting.Write) bool {
	object, there := t.objects[w.Ref.String()]
	held := t.held(w)
	_, has := held[t.knob.Name]
	return there && (!has || len(held) > 1 || len(object.GetLabels())+len(object.GetAnnotations()) > 0)
}

// inEnvironment is the turn of a node whose agent has the flag from its environment.
func (t *turning) inEnvironment(by *setting.Set, in setting.InForce, value string) (turn Turn, err error) {
	containers := t.agent.Spec.Template.Spec.Containers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == by.Place.Container })
	var held *corev1.EnvVar
	if at >= 0 && by.Ref.Namespace == t.agent.Namespace && by.Ref.Name == t.agent.Name {
		for i := range containers[at].Env {
			if one := &containers[at].Env[i]; strings.EqualFold(one.Name, by.Place.Env) {
				held = one
			}
		}
	}
	switch {
	case held == nil || held.ValueFrom != nil:
		return turn, kind.Refuse("change it there", "%s takes %s of its environment from another object",
			by.Ref, by.Place.Env)
	case t.decided:
		return turn, kind.Refuse("remove it there, with a separate plan",
			"%s=%s in %s overrides every FelixConfiguration, and a DaemonSet has one environment for all nodes: a "+
				"flag set "+
				"cannot decide about single nodes",
			held.Name, held.Value, by.Ref)
	}
	if t.agent.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return turn, kind.Refuse("recreate its pods from one template, and set its update strategy to RollingUpdate",
			"%s replaces no pod by itself (OnDelete), so its pods may have several templates", by.Ref)
	}
	w, err := t.knob.Over(by, value)
	if err != nil {
		return turn, err
	}
	t.env = held.Name
	turn = Turn{Own: w.Value, Was: held.Value, Value: fmt.Sprint(w.Value)}
	if t.knob.Same(in.Value, value) {
		turn.Own = turn.Was
	}
	return turn, t.between(in, value, &turn)
}

// template is how a value gets into the environment of agents, and out again.
func (t *turning) template(turn Turn) *Template {
	ref := step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: t.agent.Namespace, Name: t.agent.Name}
	set := func(value any, title string) step.Action {
		container := map[string]any{"name": "calico-node",
			"env": []any{map[string]any{"name": t.env, "value": fmt.Sprint(value)}}}
		object := unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind,
			"metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace},
			"spec": map[string]any{
				"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}}}
		return step.Action{Do: step.Apply{Object: &object}, Title: title}
	}
	strategy := func(value any, title string) step.Action {
		return step.Action{Do: step.Patch{Ref: ref,
			Merge: joint.Canonical(map[string]any{"spec": map[string]any{"updateStrategy": value}})}, Title: title}
	}
	return &Template{
		New: set(turn.Own, fmt.Sprintf("set the pod template of %s to %s=%v", ref, t.env, turn.Own)),
		Old: set(turn.Was, fmt.Sprintf("set the pod template of %s back to %s=%v", ref, t.env, turn.Was)),
		Hold: strategy(map[string]any{"type": appsv1.OnDeleteDaemonSetStrategyType, "rollingUpdate": nil},
			"set the update strategy of "+ref.String()+" to OnDelete"),
		Unhold: strategy(t.agent.Spec.UpdateStrategy, "restore the update strategy of "+ref.String()),
	}
}

// between fills in how a node shows the value that it has, and the one that it gets.
func (t *turning) between(in setting.InForce, value string, turn *Turn) error {
	k := t.knob
	if k.ID() == dataplane {
		turn.From, turn.To = PlaneOf(in.Value), PlaneOf(value)
	} else {
		var known, says bool
		t.parameter, turn.Said, known = k.Said(in.Value)
		if _, turn.Says, says = k.Said(value); !known || !says {
			return kind.Refuse("correct it first", "%s has the unknown value %q", k.Name, in.Value)
		}
		if t.cilium != nil {
			return nil
		}
		turn.From = step.IPTables // all that releases before the other had
		if mode, ok := t.fleet.Catalogue().Get(dataplane); ok {
			k, in = mode, t.fleet.Value(mode, in.Node)
			turn.From = PlaneOf(in.Value)
		}
		turn.To = turn.From
	}
	if turn.From == "" || turn.To == "" {
		return kind.Refuse("correct it first", "%s has the unknown value %q", k.Name, in.Value)
	}
	return nil
}

// whole says what becomes of the cluster's value: where all nodes have another one at the end, it is that.
func (t *turning) whole(flag *Flag) error {
	changes, uniform, value := 0, true, ""
	for _, turn := range flag.Turns {
		if turn.Changes() {
			changes++
		}
		uniform = uniform && (value == "" || t.knob.Same(value, turn.Value))
		value = turn.Value
	}
	if changes == 0 {
		return kind.Refuse("there is nothing to do", "%s is %s already", t.knob.Name,
			strings.Join(distinct(flag.Turns), " or "))
	}
	if t.env != "" {
		return nil // it stays in the environment
	}
	w, err := t.fleet.Write(t.knob, setting.Aim{Scope: setting.Cluster}, value)
	if err != nil {
		return err
	}
	if t.cilium != nil {
		w.Ref.Namespace = t.cilium.namespace
	}
	for node := range t.own {
		flag.OwnPath = t.own[node].Fields()
	}
	flag.WholePath = w.Fields()
	flag.Whole = func(value any) unstructured.Unstructured { return objectOf(w, value) }
	flag.Own = func(node string, value any) unstructured.Unstructured { return objectOf(t.own[node], value) }
	if uniform && !t.knob.Same(value, t.base) {
		flag.Value, flag.Before = w.Value, t.held(w)[t.knob.Name]
	}
	return nil
}

// objectOf is an edit with another value, as an object.
func objectOf(w setting.Write, value any) unstructured.Unstructured {
	w.Value = value
	object, _ := w.Object() // neither place of a rollout lies within a document
	return *object
}

// coupled are the other flags that the value goes together with, where they say something else. Either flag may know of
// it.
func coupled(fleet *setting.Fleet, k *setting.Knob, value string) []finding.Finding {
	var found []finding.Finding
	clash := func(other *setting.Knob, c setting.Coupling, when, then string) {
		is := func(one string) bool { return strings.EqualFold(one, then) }
		if !strings.EqualFold(c.When, when) || !slices.ContainsFunc(c.Not, is) && (len(c.Needs) == 0 ||
			slices.ContainsFunc(c.Needs, is)) {
			return
		}
		found = append(found, finding.Finding{ID: "rollout/coupled", Severity: finding.Warn,
			Subject: finding.Subject{Kind: "Flag", Name: k.ID()},
			Message: fmt.Sprintf("%s=%s is not compatible with %s=%s: %s", k.Name, value, other.ID(),
				fleet.Value(other, "").Value, c.Why)})
	}
	for _, c := range k.Couples {
		if other, ok := fleet.Catalogue().Get(c.With); ok {
			clash(other, c, value, fleet.Value(other, "").Value)
		}
	}
	for _, other := range fleet.Catalogue().All() {
		for _, c := range other.Couples {
			if c.With == k.ID() {
				clash(other, c, fleet.Value(other, "").Value, value)
			}
		}
	}
	return found
}

// PlaneOf is the data plane that a value of Calico's data plane flag stands for; empty when it stands for none.
func PlaneOf(value string) string {
	for one, plane := range planes() {
		if strings.EqualFold(one, value) {
			return plane
		}
	}
	return ""
}

// Wanted says for every node which value of some flags is in force by the API, where it is written, and how it shows.
// Without names they are the data plane's flags, and all flags that are set and whose effect is visible: Felix or
// Cilium's agent tells what it took, or the node's kernel shows it.
func Wanted(snapshot *cluster.Snapshot, drivers cni.Registry, names []string) ([]Attestation, error) {
	agents := map[string]*Agent{}
	for _, network := range drivers.Detect(snapshot) {
		container := network.Agent.Name
		if network.CNI == "cilium" {
			container = setting.CiliumAgent
		}
		agents[network.CNI] = &Agent{Namespace: network.Agent.Namespace,
			Selector: network.Selector, Container: container}
	}
	fleet := setting.Read(snapshot, nil)
	knobs, err := verifiable(fleet, agents, names)
	if err != nil {
		return nil, err
	}
	if len(knobs) == 0 {
		return nil, kind.Refuse("name flags to verify; that of Calico's data plane came with v3.29",
			"none of the flags that are set can be verified")
	}
	if len(fleet.Nodes()) == 0 {
		return nil, kind.Refuse("run `kubectl get nodes` with the same kubeconfig",
			"no node was found, so nothing can be verified")
	}
	var all []Attestation
	for _, node := range fleet.Nodes() {
		for _, k := range knobs {
			in := fleet.Value(k, node)
			one := Attestation{Node: node, Flag: k.Name, Wanted: in.Value}
			if in.By != nil {
				one.By = in.By.Ref.String()
			}
			if one.Expected, _ = shows(fleet, k, node); one.Expected.Parameter != "" {
				one.Expected.Agent = agents[k.Component]
			}
			if k.ID() == dataplane {
				one.Kernel = &step.Attestation{}
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// shows says how the value that is in force on a node shows there; false when nothing does.
func shows(fleet *setting.Fleet, k *setting.Knob, node string) (e Expected, ok bool) {
	value := fleet.Value(k, node).Value
	if parameter, says, tells := k.Said(value); tells {
		e.Parameter, e.Says = parameter, says
	}
	if k.ID() == dataplane {
		e.Plane = PlaneOf(value)
		return e, e.Plane != ""
	}
	for _, proof := range k.ProofsOf(value) {
		if proof.Machine() && !slices.ContainsFunc(proof.Where, func(s setting.Setting) bool {
			other, known := fleet.Catalogue().Get(s.Knob)
			return !known || !strings.EqualFold(fleet.Value(other, node).Value, s.Value)
		}) {
			e.Proofs = append(e.Proofs, proof)
		}
	}
	return e, e.Parameter != "" || len(e.Proofs) > 0
}

// verifiable are the knobs that are verified. Those of which agents speak need them there.
func verifiable(fleet *setting.Fleet, agents map[string]*Agent, names []string) ([]*setting.Knob, error) {
	absent := func(k *setting.Knob) bool {
		return agents[k.Component] == nil && (k.Component == "calico" || k.Component == "cilium")
	}
	var knobs []*setting.Knob
	for _, name := range names {
		k, err := fleet.Catalogue().Find(name)
		if err != nil {
			return nil, err
		}
		if absent(k) {
			return nil, kind.Refuse("theseus flags explain "+k.ID(), "this cluster does not use %s", k.Component)
		}
		for _, node := range fleet.Nodes() {
			if _, ok := shows(fleet, k, node); !ok {
				return nil, kind.Refuse("theseus flags explain "+k.ID(),
					"Theseus cannot see on %s whether %s took effect, so it cannot verify it", node, k.ID())
			}
		}
		knobs = append(knobs, k)
	}
	if len(names) > 0 {
		return knobs, nil
	}
	for _, k := range fleet.Catalogue().All() {
		if absent(k) {
			continue
		}
		written := k.ID() == dataplane
		for _, node := range fleet.Nodes() {
			by := fleet.Value(k, node).By
			if by != nil && !by.Unknown && !written {
				_, written = shows(fleet, k, node)
			}
		}
		if written {
			knobs = append(knobs, k)
		}
	}
	return knobs, nil
}

// scopedNames are the nodes whose configuration of their own is to stay.
func scopedNames(flag Flag) []string {
	var names []string
	for name, stays := range flag.Scoped {
		if stays {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// rolloutWaves divides the nodes by counts, or by shares that stick: a node's place in the order follows from a
// hash of the flag and its name alone (that of flagd's fractional), so who is in at one share is in at every greater
// one.
func rolloutWaves(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, flag string) ([]joint.Wave, error) {
	var waves []joint.Wave
	if len(change.WavePercents) == 0 {
		return kind.CountedWaves(snapshot, change)
	}
	if !slices.IsSorted(change.WavePercents) || change.WavePercents[0] < 1 ||
		change.WavePercents[len(change.WavePercents)-1] != 100 {
		return nil, kind.Refuse("such as --waves 1%,10%,50%,100%",
			"the shares of the nodes must increase, and the last one must be 100%%")
	}
	type placed struct {
		name string
		hash uint32
	}
	var nodes []placed
	for i := range snapshot.Nodes {
		name := snapshot.Nodes[i].Name
		nodes = append(nodes, placed{name, murmur3.StringSum32(flag + name)})
	}
	slices.SortFunc(nodes, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.name, b.name))
	})
	next := 0
	for _, percent := range change.WavePercents {
		wave := joint.Wave{Name: fmt.Sprintf("wave-%d", len(waves)+1)}
		for ; next < len(nodes) && uint64(nodes[next].hash)*100>>32 < uint64(percent); next++ {
			wave.Nodes = append(wave.Nodes, nodes[next].name)
		}
		if len(wave.Nodes) > 0 {
			waves = append(waves, wave)
		}
	}
	return waves, nil
}
