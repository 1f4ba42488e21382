package upgrade

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// upgrading carries a model of an upgrade through its actions.
type upgrading struct {
	plan *kind.Plan
	// renewed are the nodes with a new agent; order is that of the waves, and done in which they got it.
	renewed     map[string]bool
	order, done []string
	// form: new pods are of the new version; held: the DaemonSet replaces none by itself; made: the owner is known to
	// have made the DaemonSet of that form.
	form, held, made bool
	// baseline: measuring is proven; measured: it goes on.
	baseline, measured bool
	// present are the objects that the plan made and that are there; serving the definitions of which that is known;
	// final the rights that have their own form; ahead the Deployments of the new version.
	present, serving, final, ahead map[step.Ref]bool
	// rights are those of the time of two versions, definitions all that the plan brings, holders the policy and its
	// binding that deny the deletion of agents' pods.
	rights, definitions, holders []step.Ref
	// tried are the objects of the network's own check, which one step makes and deletes.
	tried []step.Ref
	// deployments are those that the plan brings to the new version; down says that it is the older one.
	deployments []step.Ref
	down        bool
	// leads: the Deployments change before the first agent.
	leads bool
	// undoing is true on the way back.
	undoing bool
	// before is what there was before the step.
	before *upgrading
}

// rules prove on every prefix: nothing of the network is touched before measuring is proven; no
// agent is replaced before the definitions serve and the rights of both versions are there; the form of new pods
// changes only while the DaemonSet replaces none by itself (an owner makes that form, once it was seen that its hold is
// in force, and is waited for), which it does again only when all agents are of one form; what follows the agents
// comes, and the old rights go, only when no old agent is left, or, where the version goes down, before the first agent
// of it; whatever changes something is gated; whatever a step did, its undo takes back, but for definitions; and at the
// end everything is new and nothing of Theseus is left.
func rules(p *kind.Plan) ([]kind.Rule, error) {
	if p.Upgrade == nil {
		return nil, nil
	}
	u := newUpgrading(p)
	if p.Upgrade.Leading && len(u.deployments) == 0 {
		return nil, fmt.Errorf("no Deployment becomes %s before the agents", p.Upgrade.To)
	}
	return []kind.Rule{{Before: u.begin, Act: func(_ *step.Step, a *step.Action) error { return u.act(a) },
		After: u.gated, Undo: u.takenBack, End: u.end}}, nil
}

func newUpgrading(p *kind.Plan) *upgrading {
	u := &upgrading{plan: p, renewed: map[string]bool{}, present: map[step.Ref]bool{}, serving: map[step.Ref]bool{},
		final: map[step.Ref]bool{}, ahead: map[step.Ref]bool{}, down: cni.Older(p.Upgrade.To, p.Upgrade.From)}
	u.leads = u.down || p.Upgrade.Leading
	for _, wave := range p.Waves {
		for _, name := range wave.Nodes {
			u.renewed[name] = false
			u.order = append(u.order, name)
		}
	}
	for i := range p.Steps {
		for j := range p.Steps[i].Actions {
			a := &p.Steps[i].Actions[j]
			ref := a.Ref()
			if tried(&p.Steps[i], ref) {
				u.tried = append(u.tried, ref)
				continue
			}
			switch do := a.Do.(type) {
			case step.Patch:
				if ref.Kind == "Deployment" && !u.owner(ref) {
					u.deployments = append(u.deployments, ref)
				}
			case step.Apply:
				switch {
				case isDefinition(ref) && !verify.Ours(ref):
					u.definitions = append(u.definitions, ref)
				case isHolder(ref) && !slices.Contains(u.holders, ref):
					u.holders = append(u.holders, ref)
				case isRight(ref) && temporary(do):
					u.rights = append(u.rights, ref)
				}
			}
		}
	}
	return u
}

// tried says whether a step deletes an object that it makes, as a check before the upgrade does.
func tried(s *step.Step, ref step.Ref) bool {
	made := false
	for i := range s.Actions {
		switch s.Actions[i].Do.(type) {
		case step.Apply:
			made = made || s.Actions[i].Ref() == ref
		case step.Delete:
			if made && s.Actions[i].Ref() == ref {
				return true
			}
		}
	}
	return false
}

func isDefinition(ref step.Ref) bool { return ref.Kind == "CustomResourceDefinition" }

// isHolder says whether an object keeps the pods of an agent from being replaced.
func isHolder(ref step.Ref) bool { return verify.IsAdmission(ref) && !verify.Ours(ref) }

func isRight(ref step.Ref) bool {
	return slices.Contains([]string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}, ref.Kind) &&
		!verify.Ours(ref)
}

// temporary is an object of the time of two versions, which is Theseus' own.
func temporary(do step.Apply) bool { return do.Object.GetLabels()[v1alpha1.LabelManaged] != "" }

func (u *upgrading) copy() *upgrading {
	same := *u
	same.renewed, same.present, same.serving = maps.Clone(u.renewed), maps.Clone(u.present), maps.Clone(u.serving)
	same.final, same.ahead = maps.Clone(u.final), maps.Clone(u.ahead)
	return &same
}

// uniform says whether all agents are of one form, and of which.
func (u *upgrading) uniform() (all, renewed bool) {
	n := len(u.done)
	return n == 0 || n == len(u.order), n > 0
}

// begin remembers what there is before a step, and demands what it needs.
func (u *upgrading) begin(s *step.Step) error {
	u.before = u.copy()
	for _, c := range s.Before {
		if err := u.holds(c); err != nil {
			return fmt.Errorf("not known before it: %w", err)
		}
	}
	reflecting := 0
	for i := range s.Actions {
		if do, is := s.Actions[i].Do.(step.Restart); is && slices.Contains(u.plan.Upgrade.Reflecting, do.NodeName) {
			reflecting++
		}
	}
	if reflecting > 1 {
		return fmt.Errorf("%d nodes that reflect routes restart in one step", reflecting)
	}
	return nil
}

func (u *upgrading) gated(s *step.Step) error {
	if s.Gate == nil && slices.ContainsFunc(s.Actions, func(a step.Action) bool { return verify.Foreign(&a) }) {
		return errors.New("it changes the network, but has no gate")
	}
	if s.Gate != nil && !u.measured {
		return errors.New("its gate has no evidence")
	}
	u.baseline = u.baseline || s.Gate != nil && s.Gate.Baseline
	return nil
}

// act does one action on the model, or says why it must not be done now.
func (u *upgrading) act(a *step.Action) error {
	if verify.Foreign(a) && !u.baseline {
		return errors.New("only Theseus' own objects may be created before measuring is proven")
	}
	if verify.Exempting(a) || verify.Retaining(a) {
		return nil
	}
	switch do := a.Do.(type) {
	case step.Apply:
		return u.apply(do)
	case step.Delete:
		return u.remove(do.Ref)
	case step.Patch:
		return u.patch(do)
	case step.Restart:
		return u.restart(do)
	case step.Probe:
		u.measured = len(do.Paths.Old) > 0
		return nil
	case step.Wait:
		return u.reach(do.Condition)
	}
	return fmt.Errorf("the operation %q is not allowed in an upgrade", a.Op())
}

func (u *upgrading) apply(do step.Apply) error {
	ref := step.RefOf(do.Object)
	if isRight(ref) && !temporary(do) {
		if all, renewed := u.uniform(); !all || !renewed {
			return fmt.Errorf("%s would remove permissions that agents of %s need", ref, u.plan.Upgrade.From)
		}
		u.final[ref] = true
		return nil
	}
	u.present[ref] = true
	return nil
}

func (u *upgrading) remove(ref step.Ref) error {
	if !u.present[ref] {
		if u.undoing && slices.Contains(u.tried, ref) {
			return nil
		}
		return fmt.Errorf("%s does not exist", ref)
	}
	if all, renewed := u.uniform(); slices.Contains(u.rights, ref) && (!all || renewed && len(u.final) == 0) {
		return fmt.Errorf("agents of %s need %s", u.plan.Upgrade.To, ref)
	}
	u.present[ref] = false
	if !slices.Contains(u.holders, ref) {
		return nil
	}
	u.held = false
	return u.unforced(ref)
}

// patch changes the DaemonSet, what its pods read, or what follows them.
func (u *upgrading) patch(do step.Patch) error {
	var patch struct {
		Spec struct {
			UpdateStrategy *appsv1.DaemonSetUpdateStrategy
			Template       *corev1.PodTemplateSpec
		}
	}
	if err := json.Unmarshal(do.Merge, &patch); err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	all, renewed := u.uniform()
	switch {
	case u.owner(do.Ref) && patch.Spec.Template != nil:
		u.form, u.made = makesNew(u.plan.Upgrade.Owner, patch.Spec.Template), false
		return cmp.Or(u.lacks(), u.unforced(do.Ref))
	case do.Ref.Kind == "Deployment" && patch.Spec.Template != nil:
		if !all || renewed == u.leads {
			return fmt.Errorf("%s may change only when no agent of %s runs", do.Ref, u.unfit())
		}
		u.ahead[do.Ref] = newForm(u.plan.Upgrade, patch.Spec.Template)
		return nil
	case do.Ref.Kind == "ConfigMap" && !u.held:
		return fmt.Errorf("an agent that is replaced now would read %s of another version", do.Ref)
	case do.Ref.Kind == "ConfigMap":
		return nil
	case do.Ref != u.plan.Source.Agent || u.plan.Upgrade.Owner != nil:
		return fmt.Errorf("%s is not part of the upgrade", do.Ref)
	}
	if patch.Spec.Template != nil {
		u.form = newForm(u.plan.Upgrade, patch.Spec.Template)
	}
	if patch.Spec.UpdateStrategy != nil {
		u.held = held(patch.Spec.UpdateStrategy)
	}
	return u.unforced(do.Ref)
}

// unfit is the version whose agents the Deployments do not change next to.
func (u *upgrading) unfit() string {
	if u.leads {
		return u.plan.Upgrade.To
	}
	return u.plan.Upgrade.From
}

// owner says whether an object is the owner of the agents' DaemonSet.
func (u *upgrading) owner(ref step.Ref) bool {
	return u.plan.Upgrade.Owner != nil && ref == u.plan.Upgrade.Owner.Ref
}

// unforced is an error where, after a change of an object, the agents' DaemonSet would replace pods by itself.
func (u *upgrading) unforced(changed step.Ref) error {
	if all, renewed := u.uniform(); !u.held && (!all || renewed != u.form) {
		return fmt.Errorf("a change of %s would replace agents at once", changed)
	}
	return nil
}

func (u *upgrading) restart(do step.Restart) error {
	name := do.NodeName
	was, known := u.renewed[name]
	switch {
	case !known:
		return fmt.Errorf("node %q is in no wave", name)
	case do.Ref != u.plan.Source.Agent:
		return fmt.Errorf("%s is not part of the upgrade", do.Ref)
	case !u.held || !u.measured:
		return fmt.Errorf("the agent of %s may be replaced only while its DaemonSet replaces no agents by itself and "+
			"paths are measured", name)
	case u.leads && slices.ContainsFunc(u.deployments, func(ref step.Ref) bool { return !u.ahead[ref] }):
		age := "older"
		if u.down {
			age = "newer"
		}
		return fmt.Errorf("objects that agents of %s need still have the %s version", u.plan.Upgrade.To, age)
	case u.plan.Upgrade.Owner != nil && (!u.made || do.Mark == ""):
		return fmt.Errorf("the agent of %s may be replaced only after the plan checks that the owner of its DaemonSet "+
			"has set the new template, and only with the mark that permits its deletion", name)
	}
	if err := u.lacks(); err != nil {
		return err
	}
	if was == u.form && !u.undoing {
		return fmt.Errorf("the agent of %s already has that template", name)
	}
	u.renewed[name] = u.form
	switch {
	case u.form && !was:
		u.done = append(slices.Clip(u.done), name)
	case !u.form && was:
		u.done = slices.DeleteFunc(slices.Clone(u.done), func(one string) bool { return one == name })
	}
	return nil
}

// lacks is an error where something is not there that the version that comes needs.
func (u *upgrading) lacks() error {
	for _, ref := range u.definitions {
		if !u.serving[ref] {
			return fmt.Errorf("%s is not known to serve", ref)
		}
	}
	for _, ref := range u.rights {
		if !u.present[ref] {
			return fmt.Errorf("%s does not exist, and %s needs it", ref, u.plan.Upgrade.To)
		}
	}
	return nil
}

// reach is what waiting for a condition brings.
func (u *upgrading) reach(c step.Condition) error {
	switch is := c.Is.(type) {
	case step.Established:
		if !u.present[is.Ref] {
			return &verify.Never{Condition: c}
		}
		u.serving[is.Ref] = true
	case step.Rolled:
		return u.holds(c)
	case step.Held:
		u.held = len(u.holders) == 2 && u.present[u.holders[0]] && u.present[u.holders[1]]
		return u.holds(c)
	case step.Renders:
		u.made = u.made || is.Ref == u.plan.Source.Agent
		return u.holds(c)
	}
	return nil
}

// holds knows of the agents and of the nodes alone.
func (u *upgrading) holds(c step.Condition) error {
	all, renewed := u.uniform()
	never := false
	switch is := c.Is.(type) {
	case step.Rolled:
		never = is.Ref == u.plan.Source.Agent && (!all || renewed != u.form)
	case step.Held:
		never = !u.held
	case step.Renders:
		never = (is.Version == u.plan.Upgrade.To) != u.form
	case step.NodesAmong:
		if !slices.Equal(is.Nodes, u.order) {
			return errors.New("the nodes are not those of the waves")
		}
	}
	if never {
		return &verify.Never{Condition: c}
	}
	return nil
}

// takenBack runs the undo of a step from after it, and compares with before it. Where a step has none, the engine puts
// every object back as it observed it, which is known for what is applied and deleted alone.
func (u *upgrading) takenBack(s *step.Step) error {
	before := u.before
	if len(s.Undo) == 0 {
		for i := range s.Actions {
			if op := s.Actions[i].Op(); !s.NoReturn && (op == step.OpPatch || op == step.OpRestart) {
				return fmt.Errorf("nothing takes %s back", s.Actions[i].Title)
			}
		}
		return nil
	}
	back := u.copy()
	back.undoing = true
	for i := range s.Undo {
		if err := back.act(&s.Undo[i]); err != nil {
			return fmt.Errorf("action %s (%s): %w", s.Undo[i].ID, s.Undo[i].Title, err)
		}
	}
	all, _ := back.uniform()
	switch {
	case !maps.Equal(back.renewed, before.renewed), back.held != before.held, back.measured && !before.measured:
		return errors.New("after the undo, the agents are not as they were before the step")
	case back.form != before.form && (all || !back.held) && (u.plan.Upgrade.Owner == nil || back.form || !back.held):
		return errors.New("after the undo, new pods would not be as they were before the step")
	case !sameTrue(back.ahead, before.ahead), !sameTrue(back.final, before.final):
		return errors.New("after the undo, the objects that are updated after the agents are not as they were " +
			"before the step")
	}
	for ref, there := range back.present {
		if there != before.present[ref] && !isDefinition(ref) && !slices.Contains(verify.Kept(), ref) {
			return fmt.Errorf("%s differs from before", ref)
		}
	}
	return nil
}

// sameTrue compares two sets.
func sameTrue(a, b map[step.Ref]bool) bool {
	for ref, holds := range a {
		if holds != b[ref] {
			return false
		}
	}
	return true
}

func (u *upgrading) end() error {
	all, renewed := u.uniform()
	switch {
	case !all || !renewed || !u.form:
		return fmt.Errorf("at the end %d of %d nodes are of %s", len(u.done), len(u.order), u.plan.Upgrade.To)
	case !slices.Equal(u.done, u.order):
		return errors.New("the nodes are not changed once each, in the order of the waves")
	case u.held || u.measured:
		return errors.New("at the end the DaemonSet does not replace pods by itself, or paths are still measured")
	case len(u.rights) != len(u.final):
		return errors.New("at the end permissions differ from those of the manifest")
	}
	for ref, ahead := range u.ahead {
		if !ahead {
			return fmt.Errorf("at the end %s is of %s", ref, u.plan.Upgrade.From)
		}
	}
	for ref, there := range u.present {
		if there && (verify.Ours(ref) || isHolder(ref) || slices.Contains(u.rights, ref)) &&
			!slices.Contains(verify.Kept(), ref) {
			return fmt.Errorf("at the end %s is still there", ref)
		}
	}
	return nil
}
