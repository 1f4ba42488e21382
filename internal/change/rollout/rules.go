package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/step"
)

// flagged is what is known of a node during a rollout.
type flagged struct {
	turn *Turn
	// own is its own value, nil for none; guarded: a guard denies there.
	own     any
	guarded bool
	// said: its agent has said that it runs with the value that it has.
	said bool
	// plane is where its rules are known to be; proven, that traffic crosses them there.
	plane  string
	proven bool
	// stale: its agent reads the flag only when it starts, and has not started since its own value changed.
	stale bool
}

// rolling carries a model of a rollout through its actions.
type rolling struct {
	plan    *kind.Plan
	nodes   []flagged // in the order of the waves, then the others
	cluster bool      // the cluster's value is the new one
	// form: new pods get the new value; held: the DaemonSet replaces none by itself.
	form, held bool
	// anew: agents take the flag only when their pods are recreated, and nothing is known of rules; hosts are the
	// values of the label by which nodes' own objects pick them.
	anew     bool
	hosts    map[string]string
	measured bool
	order    []string
	index    map[string]int
	// changing are how many nodes of order change, and switched those that did.
	changing int
	switched []string
	// before is what was known before the step, of what it has changed since. A copy of all nodes for each step would
	// grow with the square of the nodes.
	before *earlier
	// loose are the nodes that are not settled after the last step. There are hardly ever any.
	loose map[int]bool
}

// earlier is what was known at one moment.
type earlier struct {
	cluster, form, held, measured bool
	nodes                         map[int]flagged // those that were changed since, as they were
}

// rules prove on every prefix: nothing of the network is touched before measuring is proven; where rules
// move to another data plane a node's value changes only under a guard, which is released only when its rules are known
// to be in the data plane that its value says; a node is done only when it is proven; the cluster's value changes only
// when every node has it, and a node's own goes only then; every switch is gated, the changed nodes compared with the
// others; whatever a step did, its undo takes back; and at the end no guard is left, and no value of a node's own but
// where a flag set says so.
func rules(p *kind.Plan) ([]kind.Rule, error) {
	if p.Rollout == nil {
		return nil, nil
	}
	r, err := follow(p)
	if err != nil {
		return nil, err
	}
	return []kind.Rule{{
		Before: func(*step.Step) error { r.before = r.now(); return nil },
		Act:    func(_ *step.Step, a *step.Action) error { return r.act(a) },
		After:  r.after, Undo: r.takenBack, End: r.end,
	}}, nil
}

// follow is the model before the first step of a rollout.
func follow(p *kind.Plan) (*rolling, error) {
	r := &rolling{plan: p, index: map[string]int{}, hosts: map[string]string{}, anew: p.Source.CNI == "cilium",
		loose: map[int]bool{}}
	for _, wave := range p.Waves {
		for _, name := range wave.Nodes {
			if err := r.add(name); err != nil {
				return nil, err
			}
		}
	}
	r.changing = len(r.order)
	for _, name := range p.Cluster.Nodes {
		if _, known := r.index[name]; !known {
			if err := r.add(name); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// add takes in a node.
func (r *rolling) add(name string) error {
	turn, known := r.plan.Rollout.Turn(name)
	if !known {
		return fmt.Errorf("the plan has no value for node %s", name)
	}
	r.index[name] = len(r.nodes)
	r.nodes = append(r.nodes, flagged{turn: &turn, own: turn.Was, plane: turn.From, said: true})
	r.order = append(r.order, name)
	return nil
}

// folded is the cluster's value at the end, nil where that stays as it is.
func (r *rolling) folded() any {
	if r.plan.Rollout.Value == "" || r.plan.Rollout.Env != "" {
		return nil
	}
	return r.plan.Rollout.Value
}

// has says whether a node has its value.
func (r *rolling) has(n *flagged) bool { return r.cluster || Same(n.own, n.turn.Own) }

// node finds a node of the waves, to change what is known of it.
func (r *rolling) node(name string) (*flagged, error) {
	i, ok := r.index[name]
	if !ok {
		return nil, fmt.Errorf("node %q is in no wave", name)
	}
	if _, kept := r.before.nodes[i]; !kept {
		r.before.nodes[i] = r.nodes[i]
	}
	return &r.nodes[i], nil
}

// now begins to keep what is known, until it is changed.
func (r *rolling) now() *earlier {
	return &earlier{r.cluster, r.form, r.held, r.measured, map[int]flagged{}}
}

// restore makes everything known that was known then.
func (r *rolling) restore(then *earlier) {
	r.cluster, r.form, r.held, r.measured = then.cluster, then.form, then.held, then.measured
	for i, n := range then.nodes {
		r.nodes[i] = n
	}
}

// unsettled says whether an undo must not leave a node so.
func (n *flagged) unsettled() bool { return n.guarded || n.stale || !n.said && !n.turn.Moves() }

func (r *rolling) all(actions []step.Action) error {
	for i := range actions {
		if err := r.act(&actions[i]); err != nil {
			return fmt.Errorf("action %s (%s): %w", actions[i].ID, actions[i].Title, err)
		}
	}
	return nil
}

// act does one action on the model, or says why it must not be done now.
func (r *rolling) act(a *step.Action) error {
	if verify.Exempting(a) || verify.Retaining(a) {
		return nil
	}
	switch do := a.Do.(type) {
	case step.Node:
		return r.onNode(do)
	case step.Apply:
		ref := step.RefOf(do.Object)
		if node, path, ok := holder(r.plan, ref); ok {
			value, err := only(do.Object.Object, path)
			if err == nil && value == nil {
				err = fmt.Errorf("%s says nothing of %s", ref, r.plan.Rollout.Flag)
			}
			if err == nil && ref.Kind == nodeConfig {
				err = r.picks(node, do.Object)
			}
			if err != nil {
				return err
			}
			return r.value(ref, node, value)
		} else if ref == r.plan.Source.Agent {
			return r.make(do.Object)
		} else if !verify.Ours(ref) {
			return fmt.Errorf("%s is neither Theseus' nor the flag's", ref)
		}
	case step.Delete, step.Patch:
		if node, path, ok := holder(r.plan, a.Ref()); ok {
			var patch map[string]any
			if do, is := do.(step.Patch); is {
				if err := json.Unmarshal(do.Merge, &patch); err != nil {
					return err
				}
				if _, err := only(patch, path); err != nil {
					return err
				}
			} else if node == "" {
				return fmt.Errorf("%s applies to the whole cluster, and must stay", a.Ref())
			}
			return r.value(a.Ref(), node, nil)
		} else if do, is := do.(step.Patch); is && do.Ref == r.plan.Source.Agent {
			return r.hold(do)
		} else if !verify.Ours(a.Ref()) {
			return fmt.Errorf("%s is neither Theseus' nor the flag's", a.Ref())
		}
	case step.Probe:
		r.measured = len(do.Paths.Old) > 0
	case step.Restart:
		return r.restart(do)
	case step.Wait:
		return r.says(do.Condition)
	default:
		return fmt.Errorf("the operation %q is not allowed in a rollout", a.Op())
	}
	return nil
}

// only is the value at a path, if the rest of the object only says what it is and for which nodes.
func only(object map[string]any, path []string) (any, error) {
	section, _, err := unstructured.NestedMap(object, path[:len(path)-1]...)
	if _, said := section[path[len(path)-1]]; err != nil || !said || len(section) != 1 {
		return nil, errors.Join(err, fmt.Errorf("it must set only %s, not %v", path[len(path)-1], section))
	}
	return section[path[len(path)-1]], nil
}

// picks demands that a node's own CiliumNodeConfig is for one node alone.
func (r *rolling) picks(node string, object *unstructured.Unstructured) error {
	selector, _, err := unstructured.NestedMap(object.Object, "spec", "nodeSelector")
	labels, _, _ := unstructured.NestedStringMap(selector, "matchLabels")
	host := labels[hostLabel]
	if err != nil || len(selector) != 1 || len(labels) != 1 || host == "" {
		return errors.Join(err, fmt.Errorf("the selector %v does not select only %s", selector, node))
	}
	if other := r.hosts[host]; other != "" && other != node {
		return fmt.Errorf("the same selector selects %s and %s", node, other)
	}
	r.hosts[host] = node
	return nil
}

// make changes what new pods of the agents are made from.
func (r *rolling) make(object *unstructured.Unstructured) error {
	containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 || r.plan.Rollout.Env == "" {
		return errors.Join(err, fmt.Errorf("the flag must not change %s", step.RefOf(object)))
	}
	container, _ := containers[0].(map[string]any)
	env, _, _ := unstructured.NestedSlice(container, "env")
	for _, value := range []string{r.plan.Rollout.Value, r.plan.Rollout.Was} {
		if wanted := map[string]any{"name": r.plan.Rollout.Env, "value": value}; len(env) == 1 &&
			reflect.DeepEqual(env[0], wanted) {
			if !r.held {
				return errors.New("all agents would be restarted: the DaemonSet replaces pods by itself")
			}
			r.form = value == r.plan.Rollout.Value
			return nil
		}
	}
	return fmt.Errorf("no step may give %s that environment", step.RefOf(object))
}

// hold keeps the DaemonSet from replacing pods, or lets it again.
func (r *rolling) hold(do step.Patch) error {
	var patch struct {
		Spec struct {
			UpdateStrategy appsv1.DaemonSetUpdateStrategy
		}
	}
	if err := json.Unmarshal(do.Merge, &patch); err != nil {
		return err
	}
	held := patch.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	for i := range r.nodes {
		if n := &r.nodes[i]; !held && r.form != Same(n.own, n.turn.Own) {
			return fmt.Errorf("the agent of %s would be replaced: its pod differs from the template of new "+
				"ones", r.order[i])
		}
	}
	r.held = held
	return nil
}

// restart recreates the agent's pod of a node.
func (r *rolling) restart(do step.Restart) error {
	n, err := r.node(do.NodeName)
	switch {
	case err != nil:
		return err
	case do.Ref != r.plan.Source.Agent:
		return fmt.Errorf("%s is not the agent", do.Ref)
	case !r.measured:
		return errors.New("the network must not change before measuring is proven")
	}
	n.plane, n.proven, n.said = "", false, false
	if r.anew {
		if !do.Always {
			return fmt.Errorf("the pod of %s already has the current template, and would not be replaced", do.NodeName)
		}
		n.stale = false
		return nil
	}
	n.own = n.turn.Was
	if r.form {
		n.own = n.turn.Own
	}
	return nil
}

// says notes what an agent has been heard to say.
func (r *rolling) says(c step.Condition) error {
	heard, is := c.Is.(step.AgentSays)
	if !is {
		return nil
	}
	n, err := r.node(heard.Node)
	if err != nil {
		return err
	}
	n.said = (heard.Says.Value == n.turn.Says) == r.has(n) && !n.stale
	return nil
}

// value changes the value of a node, or without one of the cluster; nil takes it away, or back.
func (r *rolling) value(object step.Ref, node string, value any) error {
	whole := r.folded()
	if node == "" {
		switch {
		case whole == nil:
			return errors.New("the cluster's value must not change")
		case value != nil && !Same(value, whole):
			return fmt.Errorf("the cluster's value must be %v, not %v", whole, value)
		}
		for i := range r.nodes {
			if !Same(r.nodes[i].own, whole) {
				return fmt.Errorf("%s would be restarted by the cluster's value: it has none of its own", r.order[i])
			}
		}
		r.cluster = value != nil
		return nil
	}
	n, err := r.node(node)
	switch {
	case err != nil:
		return err
	case !r.measured:
		return errors.New("the network must not change before measuring is proven")
	case r.cluster && value != nil && !Same(value, whole), !r.cluster && !Same(value, n.turn.Own) &&
		!Same(value, n.turn.Was):
		return fmt.Errorf("no step may give %s the value %v", object, value)
	case !r.cluster && !n.guarded && n.turn.Moves():
		return fmt.Errorf("no guard on %s denies what policy denies while the rules are replaced", object)
	}
	n.own = value
	if !r.cluster {
		n.plane, n.proven, n.said, n.stale = "", false, false, r.anew
	}
	return nil
}

func (r *rolling) onNode(do step.Node) error {
	n, err := r.node(do.NodeName)
	if err != nil {
		return err
	}
	if r.anew {
		return fmt.Errorf("the plan does not check the rules of %s", do.NodeName)
	}
	switch do.Verb {
	case step.VerbGuard:
		n.guarded = true
	case step.VerbRelease:
		if n.plane == "" {
			return fmt.Errorf("the plan does not check in which data plane the rules of %s are", do.NodeName)
		}
		n.guarded = false
	case step.VerbDataplane:
		var args step.Dataplane
		if err := json.Unmarshal(do.Args, &args); err != nil {
			return fmt.Errorf("arguments: %w", err)
		}
		plane := n.turn.From
		if r.has(n) {
			plane = n.turn.To
		}
		if args.Want != plane {
			return fmt.Errorf("the rules of %s are in %s, never in %s", do.NodeName, plane, args.Want)
		}
		n.plane, n.proven = plane, n.proven || args.Passed && !n.guarded
	default:
		return fmt.Errorf("the verb %q is not allowed in a rollout", do.Verb)
	}
	return nil
}

// after is what must hold after a step that was not so before. Of a node that the step did not change it held after the
// step before, unless the step changes the cluster's value.
func (r *rolling) after(s *step.Step) error {
	before := r.before
	if s.Node != "" {
		r.switched = append(r.switched, s.Node)
	}
	changed := r.cluster != before.cluster
	touched := slices.Sorted(maps.Keys(before.nodes))
	for _, i := range touched {
		if r.loose[i] = r.nodes[i].unsettled(); !r.loose[i] {
			delete(r.loose, i)
		}
		changed = changed || !Same(r.nodes[i].own, before.nodes[i].own)
	}
	if r.cluster != before.cluster {
		touched = touched[:0]
		for i := range r.nodes {
			touched = append(touched, i)
		}
	}
	for _, i := range touched {
		switch n, name := &r.nodes[i], r.order[i]; {
		case n.guarded:
			return fmt.Errorf("a guard stays on %s", name)
		case n.stale:
			return fmt.Errorf("the agent of %s runs with the former value", name)
		case !Same(n.own, n.turn.Was) && r.has(n) && (!n.proven && !r.anew || !n.said && !n.turn.Moves()):
			return fmt.Errorf("%s is not proven", name)
		}
	}
	if !changed {
		return nil
	}
	if s.Gate == nil || !slices.Equal(s.Gate.Changed, r.switched) && (!s.Gate.Compare || len(s.Gate.Changed) > 0) {
		return errors.New("it changes nodes, and its gate does not measure them")
	}
	return nil
}

// takenBack runs the undo of a step from after it, and compares with before it.
func (r *rolling) takenBack(s *step.Step) error {
	then := r.before
	if s.NoReturn || len(s.Undo) == 0 && then.held == r.held {
		return nil
	}
	after := r.now()
	r.before = after
	if err := r.all(s.Undo); err != nil {
		return err
	}
	// of all other nodes neither the step nor its undo changed anything
	changed := maps.Clone(r.loose)
	for _, nodes := range []map[int]flagged{then.nodes, after.nodes} {
		for i := range nodes {
			changed[i] = true
		}
	}
	for _, i := range slices.Sorted(maps.Keys(changed)) {
		now, was := &r.nodes[i], r.nodes[i]
		if n, kept := then.nodes[i]; kept {
			was = n
		} else if n, kept := after.nodes[i]; kept {
			was = n
		}
		if !Same(now.own, was.own) || now.plane != was.plane || now.unsettled() {
			return fmt.Errorf("%s differs from before", r.order[i])
		}
	}
	if r.cluster != then.cluster || r.held != then.held || r.measured && !then.measured {
		return errors.New("the cluster differs from before")
	}
	r.restore(after)
	r.before = then
	return nil
}

func (r *rolling) end() error {
	if !slices.Equal(r.switched, r.order[:r.changing]) {
		return errors.New("the nodes are not switched once each, in the order of the waves")
	}
	folds := r.folded() != nil
	for i, name := range r.order {
		n := &r.nodes[i]
		own := n.turn.Own
		if folds {
			own = nil
		}
		if !Same(n.own, own) || n.guarded || n.plane != n.turn.To {
			return fmt.Errorf("at the end %s does not have its value", name)
		}
	}
	if r.cluster != folds || r.held || r.measured {
		return errors.New("at the end the cluster does not have the value, or paths are still measured")
	}
	return nil
}
