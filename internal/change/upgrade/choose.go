package upgrade

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
)

// asked says whether a change takes the network in place to another version.
func asked(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry) bool {
	return cni.Upgrades(drivers.Detect(snapshot), change)
}

// propose plans another version of the network in place, or returns a *kind.Refusal.
func propose(r *kind.Request) (*kind.Draft, error) {
	snapshot, change, drivers := r.Snapshot, r.Change, r.Drivers
	if err := surge.Unasked(change); err != nil {
		return nil, err
	}
	source, err := kind.InOrder(snapshot, drivers)
	if err != nil {
		return nil, err
	}
	next, err := another(snapshot, source, change, drivers, r.Manifest)
	if err != nil {
		return nil, err
	}
	if err := kind.AgentGiven(change); err != nil {
		return nil, err
	}
	if err := kind.NodesReady(snapshot, source); err != nil {
		return nil, err
	}
	waves, err := kind.CountedWaves(snapshot, change)
	if err != nil {
		return nil, err
	}
	in := joint.Input{Snapshot: snapshot, Source: source, Target: &cni.Target{Installation: next.Installation},
		Change: change, Waves: waves}
	p := kind.Begin(snapshot, change, r.Options, Name,
		"routes and rules stay in place while an agent restarts, so each node can get the new version and "+
			"be measured before the next")
	peering := bgp.FromSnapshot(snapshot)
	p.Upgrade = &kind.Upgrade{From: source.Version, To: next.Installation.Version, Reflecting: peering.Reflecting(),
		Leading: next.Leading}
	if o := next.Owner; o != nil {
		p.Upgrade.Owner = &kind.Owner{Ref: o.Ref, From: o.From, To: o.To}
	}
	p.Retain = peering.Carried()
	p.Source, p.Target, p.Waves, p.Steps = *source, next.Installation, kind.WavesOf(waves), Steps(in, next, p.Retain)
	p.Findings = append(slices.Clone(r.Findings), turned(snapshot, source, next, r.Manifest)...)
	return &kind.Draft{Plan: p, Stem: source.CNI + "-" + strings.ReplaceAll(next.Installation.Version, ".", "-"),
		Pods: nil}, nil
}

// another asks the driver of the network in place for the other version that the manifest installs, or returns a
// *kind.Refusal.
func another(snapshot *cluster.Snapshot, source *cni.Installation, change v1alpha1.ChangeSpec, drivers cni.Registry,
	manifest []unstructured.Unstructured) (*cni.Upgrade, error) {
	driver, _ := drivers.Get(source.CNI)
	upgrader, ok := driver.(cni.Upgrader)
	switch {
	case cmp.Or(change.To, source.CNI) != source.CNI:
		return nil, kind.Refuse("leave --strategy out, or add --to "+source.CNI,
			"this cluster is on %s, and the strategy %s only changes its version", source.CNI, Name)
	case change.PodCIDR != "" || change.Strategy != "" && change.Strategy != Name:
		return nil, kind.Refuse("leave --pod-cidr and --strategy out",
			"this cluster is already on %s: this change only changes its version, and pods keep running", source.CNI)
	case !ok:
		return nil, kind.Refuse("upgrade it with the tool that installed it; theseus check says what to look at",
			"Theseus does not know whether agents of %s of two versions work together", source.CNI)
	}
	if err := named(source.CNI, manifest); err != nil {
		return nil, err
	}
	next, err := upgrader.Upgrade(snapshot, source, manifest, change.CNIVersion)
	if refused, ok := errors.AsType[*kind.Refusal](err); ok {
		return nil, refused
	}
	if err != nil {
		return nil, fmt.Errorf("upgrade %s: %w", source.CNI, err)
	}
	if want, have := change.CNIVersion, next.Installation.Version; want != "" && want != have {
		return nil, kind.Refuse("give the manifest of the version that you want",
			"the manifest installs %s %s, not %s", source.CNI, have, want)
	}
	return next, nil
}

// turned are the settings that the other version, or its manifest, changes by the way. Of an owner it is only known
// that it makes agents of that version.
func turned(snapshot *cluster.Snapshot, source *cni.Installation, next *cni.Upgrade,
	manifest []unstructured.Unstructured) []finding.Finding {
	after := *snapshot
	after.DaemonSets, after.ConfigMaps = slices.Clone(snapshot.DaemonSets), slices.Clone(snapshot.ConfigMaps)
	for i := range manifest {
		replaced(after.DaemonSets, &manifest[i], "DaemonSet", func(s *appsv1.DaemonSet) metav1.Object { return s })
		replaced(after.ConfigMaps, &manifest[i], "ConfigMap", func(c *corev1.ConfigMap) metav1.Object { return c })
	}
	for i := range after.DaemonSets {
		if set := &after.DaemonSets[i]; next.Owner != nil && set.Namespace == source.Agent.Namespace &&
			set.Name == source.Agent.Name {
			set.Spec.Template = *set.Spec.Template.DeepCopy()
			for j := range set.Spec.Template.Spec.Containers {
				container := &set.Spec.Template.Spec.Containers[j]
				container.Image = strings.Replace(container.Image, ":"+source.Version, ":"+next.Installation.Version, 1)
			}
		}
	}
	var found []finding.Finding
	add := func(name, message, fix string) {
		found = append(found, finding.Finding{ID: "upgrade/setting", Severity: finding.Warn,
			Subject: finding.Subject{Kind: "Flag", Name: name}, Message: message, Fix: fix})
	}
	fleet := setting.Read(snapshot, nil)
	for _, c := range setting.Diff(fleet, setting.Read(&after, nil)).Changes {
		from, to := cmp.Or(c.From, "nothing"), cmp.Or(c.To, "nothing")
		add(c.Knob, fmt.Sprintf("the upgrade also changes a flag: %s changes from %s to %s (%s) on %s, when their "+
			"agents restart", c.Knob, from, to, c.Why, cluster.Count(len(c.Nodes), "node")),
			"to keep it, set it to "+from+" before the upgrade; change it later with a separate plan")
	}
	if len(next.Settings) > 0 {
		found = append(found, finding.Finding{ID: "upgrade/setting", Severity: finding.Warn,
			Subject: finding.Subject{Kind: "Network", Name: source.CNI}, Message: "the manifest of " +
				next.Installation.Version + " also changes settings: " + strings.Join(next.Settings, "; "),
			Fix: "to keep what can be kept, render the manifest with the values of the installed release"})
	}
	before, then := snapshot.DaemonSet(source.Agent.Namespace, source.Agent.Name),
		after.DaemonSet(source.Agent.Namespace, source.Agent.Name)
	for _, name := range leftOut(&before.Spec.Template.Spec, &then.Spec.Template.Spec) {
		if !fleet.Catalogue().Reads(name[strings.Index(name, " ")+1:]) {
			add(name, "the manifest lacks "+name+", which the running agents have",
				"add it to the manifest if you still need it")
		}
	}
	return found
}

// replaced puts an object of a manifest in the place of the one that is there.
func replaced[T any](list []T, object *unstructured.Unstructured, kind string, meta func(*T) metav1.Object) {
	for i := range list {
		now := meta(&list[i])
		if object.GetKind() != kind || now.GetName() != object.GetName() ||
			now.GetNamespace() != object.GetNamespace() {
			continue
		}
		var next T
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &next) == nil {
			list[i] = next
		}
	}
}

// leftOut are the variables, each as "container NAME", that one form of a pod has and the other has not, of the
// containers that both have.
func leftOut(now, then *corev1.PodSpec) []string {
	var names []string
	for _, container := range slices.Concat(now.InitContainers, now.Containers) {
		next := slices.Concat(then.InitContainers, then.Containers)
		at := slices.IndexFunc(next, func(c corev1.Container) bool { return c.Name == container.Name })
		for _, variable := range container.Env {
			if at >= 0 && !slices.ContainsFunc(next[at].Env,
				func(e corev1.EnvVar) bool { return e.Name == variable.Name }) {
				names = append(names, container.Name+" "+variable.Name)
			}
		}
	}
	return names
}

// newForm says whether a patch makes pods of the version that comes; false, of that of now.
func newForm(u *kind.Upgrade, template *corev1.PodTemplateSpec) bool { return hasTag(template, u.To) }

// makesNew says the same of a patch of the owner.
func makesNew(o *kind.Owner, template *corev1.PodTemplateSpec) bool { return hasTag(template, o.To) }

func hasTag(template *corev1.PodTemplateSpec, tag string) bool {
	return slices.ContainsFunc(template.Spec.Containers, func(c corev1.Container) bool {
		return cluster.ImageOf(c.Image).Tag == tag
	})
}

// held says whether a strategy leaves pods alone.
func held(strategy *appsv1.DaemonSetUpdateStrategy) bool {
	return strategy.Type == appsv1.OnDeleteDaemonSetStrategyType
}
