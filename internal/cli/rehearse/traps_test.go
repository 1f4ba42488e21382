package rehearse

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/mirror/scratch"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run/propose"
)

var (
	update = flag.Bool("update", false, "rewrite the golden files")
	seed   = flag.Uint64("seed", 0, "repeats the odd clusters of an earlier run; 0 for others")
)

// world is an odd cluster that is being made: a snapshot of a lab's cluster, with workloads at random.
type world struct {
	*cluster.Snapshot
	chance *rand.Rand
	pods   int
}

// newWorld is the network of a golden snapshot, without users.
func newWorld(t *testing.T, golden string, seed uint64) *world {
	t.Helper()
	w := &world{Snapshot: cnitest.Golden(t, golden), chance: rand.New(rand.NewPCG(seed, 0))}
	user := func(o metav1.Object) bool { return o.GetNamespace() == "default" && o.GetName() != "kubernetes" }
	w.Pods = slices.DeleteFunc(w.Pods, func(o corev1.Pod) bool { return user(&o) })
	w.Deployments = slices.DeleteFunc(w.Deployments, func(o appsv1.Deployment) bool { return user(&o) })
	w.ReplicaSets = slices.DeleteFunc(w.ReplicaSets, func(o appsv1.ReplicaSet) bool { return user(&o) })
	w.Services = slices.DeleteFunc(w.Services, func(o corev1.Service) bool { return user(&o) })
	for i := range w.Nodes {
		w.Nodes[i].Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"),
			corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}
		w.Nodes[i].Status.Capacity = w.Nodes[i].Status.Allocatable
	}
	return w
}

// odd adds workloads that are each odd in some way, and trap no change.
func (w *world) odd() {
	for i := range 2 + w.chance.IntN(3) {
		namespace := fmt.Sprintf("team-%d", w.chance.IntN(2))
		name := fmt.Sprintf("odd-%d", i)
		replicas := 2 + w.chance.IntN(2)
		w.deployment(namespace, name, replicas, func(_ *appsv1.Deployment, spec *corev1.PodSpec) {
			if w.chance.IntN(2) == 0 {
				spec.TerminationGracePeriodSeconds = new(int64(10 + w.chance.IntN(30)))
			}
			if w.chance.IntN(2) == 0 {
				spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
					Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "sleep 2; stop"}}}}
			}
			spec.Containers[0].ReadinessProbe.PeriodSeconds = int32(1 + w.chance.IntN(3))
		})
		if w.chance.IntN(2) == 0 {
			w.budget(namespace, name, 1)
		}
		if w.chance.IntN(2) == 0 {
			w.service(namespace, name)
		}
		if w.chance.IntN(2) == 0 {
			w.NetworkPolicies = append(w.NetworkPolicies, networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec: networkingv1.NetworkPolicySpec{PodSelector: selects(name), PolicyTypes: []networkingv1.PolicyType{
					networkingv1.PolicyTypeIngress}, Ingress: []networkingv1.NetworkPolicyIngressRule{{
					From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}}}})
		}
	}
}

func selects(app string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// deployment adds a Deployment of a program on port 8080, with a readiness probe, and its pods, which run.
func (w *world) deployment(namespace, name string, replicas int, edit func(*appsv1.Deployment, *corev1.PodSpec)) {
	w.namespace(namespace)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	d := appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(replicas)),
		Selector: new(selects(name))}}
	d.Spec.Template.Labels = selects(name).MatchLabels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.example.com/odd:1",
		Ports: []corev1.ContainerPort{{ContainerPort: 8080}}, ReadinessProbe: &corev1.Probe{PeriodSeconds: 1,
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}}}}}
	if edit != nil {
		edit(&d, &d.Spec.Template.Spec)
	}
	n := int32(replicas)
	d.Status = appsv1.DeploymentStatus{Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
	w.Deployments = append(w.Deployments, d)
	w.run(&d)
}

// run adds the pods of a Deployment.
func (w *world) run(d *appsv1.Deployment) {
	w.ReplicaSets = append(w.ReplicaSets, appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace,
		Name: d.Name + "-5d4f", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment",
			Name: d.Name, Controller: new(true)}}}, Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas,
		Selector: d.Spec.Selector, Template: d.Spec.Template}})
	for i := range int(*d.Spec.Replicas) {
		w.pods++
		node := &w.Nodes[i%2]
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace,
			Name: fmt.Sprintf("%s-5d4f-%05d", d.Name, i), Labels: map[string]string{"pod-template-hash": "5d4f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet",
				Name: d.Name + "-5d4f", Controller: new(true)}}}, Spec: *d.Spec.Template.Spec.DeepCopy()}
		for key, value := range d.Spec.Template.Labels {
			pod.Labels[key] = value
		}
		pod.Spec.NodeName = node.Name
		prefix, _, _ := strings.Cut(cmp.Or(node.Spec.PodCIDR, fmt.Sprintf("198.19.%d.0/24", 11+i%2)), ".0/")
		ip := fmt.Sprintf("%s.%d", prefix, 20+w.pods)
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
		w.Pods = append(w.Pods, pod)
	}
}

func (w *world) namespace(name string) {
	if !slices.ContainsFunc(w.Namespaces, func(n corev1.Namespace) bool { return n.Name == name }) {
		w.Namespaces = append(w.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{corev1.LabelMetadataName: name}}})
	}
}

func (w *world) budget(namespace, name string, most int) {
	w.Budgets = append(w.Budgets, policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: new(selects(name)), MaxUnavailable: new(intstr.FromInt(most))}})
}

func (w *world) service(namespace, name string) *corev1.Service {
	w.Services = append(w.Services, corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{Selector: selects(name).MatchLabels, Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Port: 443, Protocol: corev1.ProtocolTCP,
				TargetPort: intstr.FromInt32(8080)}}}})
	return &w.Services[len(w.Services)-1]
}

// spread puts a pod on each of two nodes: the first node that is changed has one.
func spread(d *appsv1.Deployment, spec *corev1.PodSpec) {
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1,
		TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector}}
}

// The traps that pods are, which bite in any cluster.
func plantBudget(w *world) {
	w.deployment("trap", "never", 2, spread)
	w.budget("trap", "never", 0)
}

func plantDrain(w *world) {
	w.deployment("trap", "slow", 2, func(d *appsv1.Deployment, spec *corev1.PodSpec) {
		spread(d, spec)
		spec.TerminationGracePeriodSeconds = new(int64(3600))
		spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"/bin/sleep", "infinity"}}}}
	})
}

func plantFinalizer(w *world) {
	w.deployment("trap", "held", 2, spread)
	pod := w.Pods[len(w.Pods)-1].DeepCopy()
	pod.Name += "-old"
	pod.Finalizers = []string{"example.com/sink"}
	pod.DeletionTimestamp = new(metav1.NewTime(w.TakenAt.Add(-time.Hour)))
	pod.Status.Phase, pod.Status.Conditions = corev1.PodSucceeded, nil
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	pod.Status.ContainerStatuses[0].Ready = false
	w.Pods = append(w.Pods, *pod)
}

func plantProbe(w *world) {
	w.deployment("trap", "late", 2, func(d *appsv1.Deployment, spec *corev1.PodSpec) {
		spread(d, spec)
		spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 80
	})
}

// plantPiDay is what broke Reddit on Pi-Day: BGPPeers of the golden cluster select reflectors by a label. Programs on
// two nodes ask each other, and one asks for a node with the label.
func plantPiDay(w *world) {
	apart := func(name, other string) {
		w.deployment("shop", name, 1, func(_ *appsv1.Deployment, spec *corev1.PodSpec) {
			spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: corev1.LabelHostname, LabelSelector: new(selects(other))}}}}
		})
	}
	apart("web", "db")
	apart("db", "web")
	w.deployment("trap", "pinned", 1, func(_ *appsv1.Deployment, spec *corev1.PodSpec) {
		spec.NodeSelector = map[string]string{"node-role.kubernetes.io/master": ""}
	})
}

// labSeed is the seed of the clusters that the lab rehearses.
const labSeed = 7

// TestLabSnapshots: the snapshots that lab/test/rehearse uses are those that this test makes.
func TestLabSnapshots(t *testing.T) {
	for name, plants := range map[string][]func(*world){"quiet": nil,
		"traps": {plantBudget, plantDrain, plantFinalizer, plantProbe}, "piday": {plantPiDay}} {
		golden := "flannel"
		if name == "piday" {
			golden = "calico-bgp"
		}
		w := newWorld(t, golden, labSeed)
		if name == "quiet" {
			w.odd()
		}
		for _, plant := range plants {
			plant(w)
		}
		w.Facts, w.UID = nil, "original-"+name
		got, err := json.MarshalIndent(w.Snapshot, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("..", "..", "..", "lab", "test", "rehearse", name+".json")
		if *update {
			if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || !bytes.Equal(bytes.TrimSpace(want), got) {
			t.Errorf("%s differs (%v); -update rewrites it", file, err)
		}
	}
}

// planted is one of the twelve kinds of traps.
type planted struct {
	base   string // golden snapshot
	change v1alpha1.ChangeSpec
	// both changes what the two clusters have in common.
	both  func(*world)
	plant func(*world)
	// served is what the registry says about the agent's image.
	served check.Served
	// check finds it on the original, as severe as that; empty if none does.
	check    string
	severity finding.Severity
	// carried says that what makes the trap bite is in the copy.
	carried func(*testing.T, *rehearsal.Copy) bool
	// lost says that it is not, and lacks what the first table says then, or the list of what is left out.
	lost  bool
	lacks string
}

var (
	toCalico = v1alpha1.ChangeSpec{To: "calico", PodCIDR: "10.96.0.0/16", Strategy: "recreate",
		AgentImage: "registry.example.com/agent:1"}
	label = v1alpha1.ChangeSpec{RemoveLabels: []string{"disk"}}
)

// template is the pods' template of a Deployment of a copy, and the Deployment's namespace is trap.
func template(t *testing.T, made *rehearsal.Copy, name string) corev1.PodTemplateSpec {
	t.Helper()
	for _, object := range made.Objects {
		if object.GetKind() == "Deployment" && object.GetNamespace() == "trap" && object.GetName() == name {
			return cnitest.Snapshot(t, []unstructured.Unstructured{*object}).Deployments[0].Spec.Template
		}
	}
	t.Fatalf("the copy has no Deployment %s", name)
	return corev1.PodTemplateSpec{}
}

// traps are the twelve kinds, by name.
var traps = map[string]planted{
	"budget": {change: toCalico, plant: plantBudget, check: "pdb/blocks", severity: finding.Block,
		carried: func(_ *testing.T, made *rehearsal.Copy) bool {
			return slices.Contains(made.Budgets, rehearsal.Budget{Namespace: "trap", Name: "never"})
		}},
	"webhook": {change: toCalico, check: "webhook/deadlock", severity: finding.Block,
		plant: func(w *world) {
			w.deployment("trap", "hook", 1, nil)
			w.service("trap", "hook")
			w.Other = append(w.Other, unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
				"metadata": map[string]any{"name": "hook"}, "webhooks": []any{map[string]any{
					"name": "hook.example.com", "failurePolicy": "Fail", "sideEffects": "None",
					"clientConfig": map[string]any{"service": map[string]any{"namespace": "trap", "name": "hook"}},
					"rules": []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"},
						"operations": []any{"CREATE"}, "resources": []any{"pods"}}},
					"admissionReviewVersions": []any{"v1"}}}}})
		},
		carried: func(_ *testing.T, made *rehearsal.Copy) bool {
			return len(made.Webhooks) == 1 && len(made.Unasked) == 0
		}},
	"label": {change: label, check: "labels/removed-in-use", severity: finding.Block,
		plant: func(w *world) {
			w.deployment("trap", "pinned", 1, func(_ *appsv1.Deployment, spec *corev1.PodSpec) {
				spec.NodeSelector = map[string]string{"disk": "ssd"}
			})
		},
		carried: func(t *testing.T, made *rehearsal.Copy) bool {
			return template(t, made, "pinned").Spec.NodeSelector["disk"] == "ssd" && slices.ContainsFunc(made.Nodes,
				func(n rehearsal.NodeChange) bool { return n.Labels["disk"] == "ssd" })
		}},
	"mtu": {change: toCalico, check: "mtu/too-big", severity: finding.Block, lost: true,
		plant: func(w *world) { w.Facts[0].Links[0].MTU = 1400 }},
	"host port": {change: toCalico, check: "workload/host-port", severity: finding.Warn,
		plant: func(w *world) {
			w.deployment("trap", "port", 1, func(_ *appsv1.Deployment, spec *corev1.PodSpec) {
				spec.Containers[0].Ports[0].HostPort = 18080
			})
		},
		carried: func(t *testing.T, made *rehearsal.Copy) bool {
			return template(t, made, "port").Spec.Containers[0].Ports[0].HostPort == 18080
		}},
	"policy": {change: toCalico, check: "policy/verdict-changes", severity: finding.Block,
		both: func(w *world) { // nothing enforces policies, until Calico does
			router := func(o metav1.Object) bool { return strings.HasPrefix(o.GetName(), "kube-router") }
			w.DaemonSets = slices.DeleteFunc(w.DaemonSets, func(o appsv1.DaemonSet) bool { return router(&o) })
			w.Pods = slices.DeleteFunc(w.Pods, func(o corev1.Pod) bool { return router(&o) })
		},
		plant: func(w *world) {
			w.deployment("trap", "shut", 1, nil)
			w.deployment("trap", "asks", 1, nil)
			w.NetworkPolicies = append(w.NetworkPolicies, networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "trap", Name: "shut"}, Spec: networkingv1.NetworkPolicySpec{
					PodSelector: selects("shut"), PolicyTypes: []networkingv1.PolicyType{"Ingress"}}})
		},
		carried: func(_ *testing.T, made *rehearsal.Copy) bool {
			asked := slices.ContainsFunc(made.Traffic, func(p rehearsal.Pair) bool {
				return p.To == "Deployment trap/shut" && !p.Denied && p.DeniedAfter
			})
			return asked && slices.ContainsFunc(made.Objects, func(o *unstructured.Unstructured) bool {
				return o.GetKind() == "NetworkPolicy" && o.GetNamespace() == "trap" && o.GetName() == "shut"
			})
		}},
	"reflector": {base: "calico-bgp", change: label, check: "bgp/peer-selector-empty", severity: finding.Warn,
		carried: func(_ *testing.T, made *rehearsal.Copy) bool {
			return slices.ContainsFunc(made.Objects, func(o *unstructured.Unstructured) bool {
				return o.GetKind() == "BGPPeer" && o.GetName() == "trap"
			})
		},
		plant: func(w *world) {
			w.Other = append(w.Other, unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "crd.projectcalico.org/v1", "kind": "BGPPeer", "metadata": map[string]any{"name": "trap"},
				"spec": map[string]any{"nodeSelector": "all()", "peerSelector": "disk == 'ssd'"}}})
		}},
	"probe": {change: toCalico, plant: plantProbe, carried: func(t *testing.T, made *rehearsal.Copy) bool {
		return template(t, made, "late").Spec.Containers[0].ReadinessProbe.InitialDelaySeconds == 80
	}},
	"drain": {change: toCalico, plant: plantDrain, carried: func(t *testing.T, made *rehearsal.Copy) bool {
		spec := template(t, made, "slow").Spec
		return *spec.TerminationGracePeriodSeconds == 3600 &&
			spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds == 3600
	}},
	"range": {change: toCalico, check: "cidr/overlap", severity: finding.Block, lost: true, lacks: "1 external IP",
		plant: func(w *world) {
			w.namespace("trap")
			w.service("trap", "entry").Spec.ExternalIPs = []string{"10.96.7.7"}
		}},
	"image": {change: toCalico, check: "agent/image", severity: finding.Block, served: check.Served{Missing: true},
		plant: func(*world) {}}, // the change itself carries it
	"finalizer": {change: toCalico, plant: plantFinalizer, carried: func(t *testing.T, made *rehearsal.Copy) bool {
		return slices.Equal(template(t, made, "held").Finalizers, []string{rehearsal.HeldPrefix + "sink"})
	}},
}

// side is a cluster with the findings of a change.
func (p *planted) side(t *testing.T, s *cluster.Snapshot) checkedSide {
	t.Helper()
	in := propose.Input{Snapshot: s, Change: p.change, Options: propose.Options(p.change, time.Now())}
	if p.change.To != "" {
		in.Manifest = cnitest.Fixture(t, "calico-manifest.yaml")
		in.Served = func() *check.Served { return &p.served }
	}
	checked, err := propose.Check(in)
	if err != nil {
		t.Fatal(err)
	}
	return checkedSide{rehearsal.Side{Snapshot: s, Network: checked.Pass.Source, Findings: checked.Result},
		checked.Pass.Target}
}

// checkedSide is a cluster and the network after a change.
type checkedSide struct {
	rehearsal.Side
	target *cni.Installation
}

// on is the scratch cluster with the copy, all of whose pods run.
func (w *world) on(t *testing.T, made *rehearsal.Copy) *cluster.Snapshot {
	t.Helper()
	for _, change := range made.Nodes {
		for i := range w.Nodes {
			if w.Nodes[i].Name == change.Name {
				for key, value := range change.Labels {
					w.Nodes[i].Labels[key] = value
				}
			}
		}
	}
	var objects []unstructured.Unstructured
	for _, object := range slices.Concat(made.Objects, made.Webhooks) {
		objects = append(objects, *object)
	}
	copied := cnitest.Snapshot(t, objects)
	w.Namespaces = append(w.Namespaces, copied.Namespaces...)
	w.Services = append(w.Services, copied.Services...)
	w.Budgets = append(w.Budgets, copied.Budgets...)
	w.NetworkPolicies = append(w.NetworkPolicies, copied.NetworkPolicies...)
	w.Deployments = append(w.Deployments, copied.Deployments...)
	w.Other = append(w.Other, copied.Other...)
	for i := range copied.Deployments {
		w.run(&copied.Deployments[i])
		d := &w.Deployments[len(w.Deployments)-len(copied.Deployments)+i]
		d.Status = appsv1.DeploymentStatus{Replicas: *d.Spec.Replicas, ReadyReplicas: *d.Spec.Replicas}
	}
	return w.Snapshot
}

// worst is the worst finding of a check that is about the trap: about an object of its namespace or name, or of the
// cluster as a whole.
func worst(side checkedSide, id string) (severity finding.Severity) {
	for _, f := range side.Findings.Findings {
		if f.ID == id && (severity == "" || f.Severity == finding.Block) {
			severity = f.Severity
		}
	}
	return severity
}

// TestTrapsInCopy: in odd clusters that are made at random, each of twelve kinds of traps is found by its check, if it
// has one; what makes it bite is in the copy, and the check finds it there, too; or the copy says that it is not, and
// so does its coverage. Without the trap, the check finds nothing.
func TestTrapsInCopy(t *testing.T) {
	from := *seed
	if from == 0 {
		from = uint64(time.Now().UnixNano())
	}
	if len(traps) != 12 {
		t.Errorf("%d kinds of traps", len(traps))
	}
	for name, p := range traps {
		if p.base == "" {
			p.base = "flannel"
		}
		for n := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("go test -run '^%s$' -seed %d makes the same clusters", t.Name(), from)
					}
				}()
				p.rehearsed(t, from+n)
			})
		}
	}
}

// clusters are the original with the trap, and an empty cluster like it.
func (p *planted) clusters(t *testing.T, seed uint64, trapped bool) (original, empty *world) {
	original, empty = newWorld(t, p.base, seed), newWorld(t, p.base, seed)
	empty.UID = "the-scratch"
	original.Nodes[0].Labels["disk"] = "ssd"
	if p.both != nil {
		p.both(original)
		p.both(empty)
	}
	original.odd()
	if p.both != nil {
		original.NetworkPolicies = nil // which nothing enforces, either
	}
	if trapped {
		p.plant(original)
	}
	return original, empty
}

func (p *planted) rehearsed(t *testing.T, seed uint64) {
	quiet, _ := p.clusters(t, seed, false)
	without := *p
	without.served = check.Served{}
	if found := worst(without.side(t, quiet.Snapshot), p.check); p.check != "" && found != "" {
		t.Errorf("without the trap: %s finds it (%s)", p.check, found)
	}
	original, empty := p.clusters(t, seed, true)
	before := p.side(t, original.Snapshot)
	if found := worst(before, p.check); found != p.severity {
		t.Errorf("%s says %q of the original, want %q", p.check, found, p.severity)
	}
	all := drivers.All()
	made, err := rehearsal.Make(original.Snapshot, empty.Snapshot, all.Detect(original.Snapshot),
		all.Detect(empty.Snapshot), rehearsal.Options{Image: "registry.example.com/agent:1", Certify: scratch.Certify,
			After: before.target})
	if err != nil {
		t.Fatal(err)
	}
	if p.carried != nil && !p.carried(t, made) {
		t.Error("the copy lacks what makes the trap bite")
	}
	after := p.side(t, empty.on(t, made))
	if unlike := made.Reread(after.Snapshot, after.Network, after.target); len(unlike) > 0 || len(made.Traffic) == 0 {
		t.Errorf("of %d connections between stand-ins, policies of the copy say something else of: %v",
			len(made.Traffic), unlike)
	}
	var coverage bytes.Buffer
	covered := made.Covered(before.Side, after.Side, checks(propose.Checked{}), nil)
	for i := range covered {
		fmt.Fprintln(&coverage, strings.Join(covered[i].Not, "\n"))
	}
	for _, lack := range made.Lacks {
		fmt.Fprintln(&coverage, lack.What)
	}
	unlike := p.check + ": " + string(p.severity) + " on the original, nothing on the copy"
	if said := strings.Contains(coverage.String(), unlike); said != p.lost {
		t.Errorf("%q is said: %v", unlike, said)
	}
	if found := worst(after, p.check); (found == p.severity) == p.lost {
		t.Errorf("%s says %q of the copy", p.check, found)
	}
	if !strings.Contains(coverage.String(), p.lacks) {
		t.Errorf("%q is missing: %s", p.lacks, coverage.String())
	}
}
