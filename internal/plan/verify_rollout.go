package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/step"
)

// flagged is what is known of a node during a rollout.
type flagged struct {
	// own: it has the value by a configuration of its own; guarded: a guard denies there.
	own, guarded bool
	// said: its agent has said that it runs with the value that it has.
	said bool
	// plane is where its rules are known to be; proven, that traffic crosses them there.
	plane  string
	proven bool
}

// rolling carries a model of a rollout through its actions.
type rolling struct {
	plan     *Plan
	nodes    []flagged // in the order of the waves
	cluster  bool      // the cluster's value is the new one
	measured bool
	order    []string
	index    map[string]int
}

// verifyRollout proves the rules on every prefix: nothing of the network is touched before measuring is proven; where rules
// move to another data plane a node's value changes only under a guard, which is released only when its rules are known to be in the data plane
// that its value says; a node is done only when it is proven; the cluster's value changes only when every node has
// it, and a node's own goes only then; every switch is gated, with exactly the changed nodes as changed; whatever
// a step did, its undo takes back; and at the end no guard and no value of a node's own is left.
func verifyRollout(p *Plan) error {
	if err := unique(p); err != nil {
		return err
	}
	r := &rolling{plan: p, index: map[string]int{}}
	for _, wave := range p.Waves {
		for _, name := range wave.Nodes {
			r.index[name] = len(r.nodes)
			r.nodes = append(r.nodes, flagged{plane: p.Rollout.From, said: true})
			r.order = append(r.order, name)
		}
	}
	var switched []string
	for i := range p.Steps {
		s := &p.Steps[i]
		before := r.copy()
		if err := r.all(s.Actions); err != nil {
			return fmt.Errorf("step %s: %w", s.ID, err)
		}
		if s.Node != "" {
			switched = append(switched, s.Node)
		}
		if err := r.after(s, before, switched); err != nil {
			return fmt.Errorf("step %s: %w", s.ID, err)
		}
		if err := before.takenBack(s, r); err != nil {
			return fmt.Errorf("undo of step %s: %w", s.ID, err)
		}
	}
	return r.end(switched)
}

// moves says whether rules move from one data plane to the other.
func (r *rolling) moves() bool { return r.plan.Rollout.From != r.plan.Rollout.To }

// node finds a node of the waves.
func (r *rolling) node(name string) (*flagged, error) {
	i, ok := r.index[name]
	if !ok {
		return nil, fmt.Errorf("node %q is in no wave", name)
	}
	return &r.nodes[i], nil
}

func (r *rolling) copy() *rolling {
	same := *r
	same.nodes = slices.Clone(r.nodes)
	return &same
}

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
	switch a.Op {
	case step.Node:
		return r.onNode(a)
	case step.Apply:
		if ref := step.RefOf(a.Object); ref.Kind == "FelixConfiguration" {
			return r.value(ref.Name, true)
		} else if !ours(ref) {
			return fmt.Errorf("%s is neither Theseus' nor the flag's", ref)
		}
	case step.Delete, step.Patch:
		if a.Ref.Kind == "FelixConfiguration" {
			return r.value(a.Ref.Name, false)
		} else if !ours(*a.Ref) {
			return fmt.Errorf("%s is neither Theseus' nor the flag's", a.Ref)
		}
	case step.Probe:
		r.measured = len(a.Paths.Old) > 0
	case step.Wait:
		return r.says(a.Condition)
	default:
		return fmt.Errorf("the operation %q has no place in a rollout", a.Op)
	}
	return nil
}

// says notes what an agent has been heard to say.
func (r *rolling) says(c *step.Condition) error {
	if c.Kind != step.AgentSays {
		return nil
	}
	n, err := r.node(c.Node)
	if err != nil {
		return err
	}
	n.said = (c.Says.Value == r.plan.Rollout.Says) == (n.own || r.cluster)
	return nil
}

// value changes the value of the cluster or of a node: to the new one, or away from it.
func (r *rolling) value(object string, wanted bool) error {
	if object == "default" {
		for i := range r.nodes {
			if !r.nodes[i].own {
				return fmt.Errorf("%s would be restarted by the cluster's value: it has none of its own", r.order[i])
			}
		}
		r.cluster = wanted
		return nil
	}
	name := object[min(len("node."), len(object)):]
	n, err := r.node(name)
	switch {
	case err != nil:
		return err
	case !r.measured:
		return errors.New("nothing of the network may change before measuring is proven")
	case !r.cluster && !n.guarded && r.moves():
		return fmt.Errorf("nothing keeps denied on %s what policy denies while its rules are written anew", name)
	}
	n.own = wanted
	if !r.cluster {
		n.plane, n.proven, n.said = "", false, false
	}
	return nil
}

func (r *rolling) onNode(a *step.Action) error {
	n, err := r.node(a.NodeName)
	if err != nil {
		return err
	}
	switch a.Verb {
	case step.VerbGuard:
		n.guarded = true
	case step.VerbRelease:
		if n.plane == "" {
			return fmt.Errorf("it is not known where the rules of %s are", a.NodeName)
		}
		n.guarded = false
	case step.VerbDataplane:
		var args step.Dataplane
		if err := json.Unmarshal(a.Args, &args); err != nil {
			return fmt.Errorf("arguments: %w", err)
		}
		plane := r.plan.Rollout.From
		if n.own || r.cluster {
			plane = r.plan.Rollout.To
		}
		if args.Want != plane {
			return fmt.Errorf("the rules of %s come in %s, and never in %s", a.NodeName, plane, args.Want)
		}
		n.plane, n.proven = plane, n.proven || args.Passed && !n.guarded
	default:
		return fmt.Errorf("the verb %q has no place in a rollout", a.Verb)
	}
	return nil
}

// after is what must hold after a step that was not so before.
func (r *rolling) after(s *step.Step, before *rolling, switched []string) error {
	changed := r.cluster != before.cluster
	for i, name := range r.order {
		n := &r.nodes[i]
		if *n == before.nodes[i] {
			continue
		}
		changed = changed || n.own != before.nodes[i].own
		switch {
		case n.guarded:
			return fmt.Errorf("a guard stays on %s", name)
		case n.own && (!n.proven || !n.said && !r.moves()):
			return fmt.Errorf("%s is not proven", name)
		}
	}
	if !changed {
		return nil
	}
	if s.Gate == nil || !slices.Equal(s.Gate.Changed, switched) {
		return errors.New("it changes nodes, and its gate does not ask for them")
	}
	return nil
}

// takenBack runs the undo of a step from after it, and compares with before it.
func (r *rolling) takenBack(s *step.Step, after *rolling) error {
	if s.NoReturn || len(s.Undo) == 0 {
		return nil
	}
	back := after.copy()
	if err := back.all(s.Undo); err != nil {
		return err
	}
	for i, name := range r.order {
		now, then := &back.nodes[i], &r.nodes[i]
		if now.own != then.own || now.guarded || now.plane != then.plane || !now.said && !r.moves() {
			return fmt.Errorf("%s is not as before", name)
		}
	}
	if back.cluster != r.cluster || back.measured && !r.measured {
		return errors.New("the cluster is not as before")
	}
	return nil
}

func (r *rolling) end(switched []string) error {
	if !slices.Equal(switched, r.order) {
		return errors.New("nodes are not switched in the order of the waves, each once")
	}
	for i, name := range r.order {
		if n := &r.nodes[i]; n.own || n.guarded || n.plane != r.plan.Rollout.To {
			return fmt.Errorf("at the end %s is not like the cluster", name)
		}
	}
	if !r.cluster || r.measured {
		return errors.New("at the end the value is not the cluster's, or measuring goes on")
	}
	return nil
}
