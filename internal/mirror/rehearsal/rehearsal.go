// Package rehearsal decides what a small copy of a cluster has, on which a change is rehearsed: which nodes of a
// scratch cluster play which class of the original's nodes, which objects are made there, and how pods of users become
// pods of the stand-in program. It is pure: snapshots in, a Copy out. Package scratch makes the copy, and removes it.
//
// Belongs here: the copy as data, what a copy cannot have, and the comparison of the two clusters.
//
// Does not belong here: running the change, which is run's.
package rehearsal

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// MarkLabel is on every object of a copy; its value says of which cluster it is (Mark).
	MarkLabel = "rehearsal.theseus.dev/of"
	// BeforeAnnotation is on every changed node of the scratch cluster: what the rehearsal gave it (Given).
	BeforeAnnotation = "rehearsal.theseus.dev/before"
	// Manager is the field manager of everything in a copy.
	Manager = "theseus-rehearse"
)

// Options are what a user decided.
type Options struct {
	// Image is the agent's image, whose stand-in program runs in every container of the copy.
	Image string
	// Ignore are what does not tell classes of nodes apart: keys of labels and taints, or "kernel" or "capacity".
	Ignore []string
	// Certify makes a certificate that is valid for these DNS names.
	Certify func(names []string) (Certificate, error)
	// After is the network after the change; nil if that stays.
	After *cni.Installation
	// Manifest installs the network on a scratch cluster that has none; nil if it has one.
	Manifest []unstructured.Unstructured
}

// Copy is a small copy of a cluster.
type Copy struct {
	// Of identifies the original; it is the value of MarkLabel.
	Of      string  `json:"of"`
	Classes []Class `json:"classes"`
	// Nodes are the changes of the scratch cluster's nodes.
	Nodes []NodeChange `json:"-"`
	// Objects are in the order in which they are made.
	Objects []*unstructured.Unstructured `json:"-"`
	// Webhooks are the webhook configurations: they are made when the pods that answer for them are ready.
	Webhooks  []*unstructured.Unstructured `json:"-"`
	Workloads []Workload                   `json:"workloads"`
	Budgets   []Budget                     `json:"budgets,omitempty"`
	// Quotas are the ResourceQuotas: they are made when all pods are ready, as some of the original's pods may be older
	// than a bound that they do not keep.
	Quotas []Quota `json:"quotas,omitempty"`
	// Unbounded are quotas and LimitRanges that could not be read.
	Unbounded []string `json:"unbounded,omitempty"`
	// Lacks say what the copy cannot have.
	Lacks []Lack `json:"lacks"`
	// Unasked are webhooks that must answer, and that the copy lacks.
	Unasked []string `json:"unasked,omitempty"`
	// Left are objects of users that are not in the copy.
	Left []Left `json:"left,omitempty"`
	// Traffic are the connections that stand-ins open all the time; Extra is how many of the objects are not of users:
	// Services that stand-ins ask and the original does not have, and objects of the network.
	Traffic []Pair `json:"traffic,omitempty"`
	Extra   int    `json:"-"`
	// Network is what the scratch cluster's network gets, before anything else.
	Network Network `json:"network"`
	// Pods is how many pods the copy has at least, without those of DaemonSets.
	Pods int `json:"pods"`
	// Share is how many nodes the copy has for one of the original's, at most 1.
	Share float64 `json:"share"`

	// network is how many of the objects that configure the original's network the scratch cluster has.
	network Coverage
	// answering are the workloads whose pods answer for webhooks.
	answering map[string]bool
}

// All are the objects, the webhook configurations and the quotas.
func (c *Copy) All() []*unstructured.Unstructured {
	return slices.Concat(c.Objects, c.Webhooks, c.Bounding())
}

// Unanswered are those of these workloads, such as Deployment shop/web, whose pods answer for webhooks of the copy.
func (c *Copy) Unanswered(workloads []string) []string {
	return slices.DeleteFunc(slices.Clone(workloads), func(name string) bool { return !c.answering[name] })
}

// Workload is a workload of users, with its pods in the original and in the copy. DaemonSets have one on every node
// that they select.
type Workload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Original  int32  `json:"original"`
	Copy      int32  `json:"copy"`
}

// Lack is something that a copy cannot have, and what follows from that.
type Lack struct {
	What    string `json:"what"`
	Follows string `json:"follows"`
}

// Left is an object of users that is not in the copy.
type Left struct {
	Object string `json:"object"`
	Why    string `json:"why"`

	// network says that it configures the network.
	network bool
}

// Mark is the value of MarkLabel for a cluster with this UID.
func Mark(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:8])
}

// needed are the resources without which a snapshot cannot be copied.
func needed() []string {
	return []string{"nodes", "namespaces", "pods", "services", "daemonsets", "deployments", "replicasets",
		"statefulsets", "jobs", "poddisruptionbudgets", "networkpolicies"}
}

// unread are the needed resources that a snapshot lacks, each with the reason.
func unread(s *cluster.Snapshot) (missing []string) {
	for _, resource := range needed() {
		if ok, why := s.Has(resource); !ok {
			missing = append(missing, fmt.Sprintf("%s (%s)", resource, why))
		}
	}
	return missing
}

// refuse makes the error of a copy that cannot be made.
func refuse(hint, format string, args ...any) error {
	return &cni.Refusal{Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Usable refuses a snapshot that cannot be copied: it lacks kinds, or does not say of which cluster it is.
func Usable(original *cluster.Snapshot) error {
	missing := unread(original)
	const again = "take it with a user who may read them: theseus snapshot -o snapshot.json"
	switch {
	case len(missing) > 0:
		return refuse(again, "the snapshot has no %s: the copy needs them", strings.Join(missing, ", "))
	case original.UID == "":
		return refuse("take it from the live cluster: theseus snapshot -o snapshot.json",
			"the snapshot does not identify its cluster (by the UID of Namespace kube-system), so it cannot be "+
				"told from the scratch cluster")
	case len(original.Nodes) == 0:
		return refuse(again, "the snapshot has no nodes")
	}
	return nil
}

// System reports whether a namespace is a cluster's own: it is not copied, since the scratch cluster has its own.
// networks are those of the cluster.
func System(name string, networks []*cni.Installation) bool {
	if cluster.IsSystemNamespace(name) || slices.Contains([]string{"kube-node-lease", v1alpha1.Namespace,
		"calico-apiserver", "local-path-storage"}, name) {
		return true
	}
	return slices.ContainsFunc(networks, func(i *cni.Installation) bool {
		return i.HasAgent() && i.Agent.Namespace == name
	})
}

// oneNetwork refuses an original that has not exactly one network.
func oneNetwork(ours []*cni.Installation) error {
	if len(ours) != 1 {
		return refuse("theseus check --from FILE says what was found",
			"the snapshot has %s: a rehearsal needs exactly one", cluster.Count(len(ours), "known network"))
	}
	return nil
}

// another refuses a scratch cluster that is the original.
func another(original, scratch *cluster.Snapshot) error {
	switch scratch.UID {
	case "":
		return refuse("use a user who may read namespaces",
			"the scratch cluster does not say which cluster it is: the UID of its Namespace kube-system cannot be read")
	case original.UID:
		return refuse("name another cluster with --context",
			"the scratch cluster is the original itself: the snapshot was taken there")
	}
	return nil
}

// Same refuses a scratch cluster that is the original, or whose network is not the original's.
func Same(original, scratch *cluster.Snapshot, ours, theirs []*cni.Installation) error {
	const prepare = "install the original's network there first; on a cluster without a network, " +
		"--network-manifest FILE does that"
	switch {
	case another(original, scratch) != nil:
		return another(original, scratch)
	case oneNetwork(ours) != nil:
		return oneNetwork(ours)
	case len(theirs) == 0:
		return refuse(prepare, "the scratch cluster has no network that Theseus knows, and the original has %s",
			ours[0].Versioned())
	case len(theirs) > 1 || theirs[0].CNI != ours[0].CNI:
		var names []string
		for _, one := range theirs {
			names = append(names, one.Versioned())
		}
		return refuse(prepare, "the scratch cluster has %s, and the original has %s",
			strings.Join(names, " and "), ours[0].Versioned())
	}
	return nil
}

// Empty refuses a scratch cluster that has objects of users, or where they could not be read, and names them. A copy
// that was kept is named as such. What a snapshot does not have is scratch.Empty's.
func Empty(scratch *cluster.Snapshot, networks []*cni.Installation) error {
	if missing := unread(scratch); len(missing) > 0 {
		return refuse("use a cluster administrator of the scratch cluster",
			"Theseus cannot tell whether the scratch cluster is empty: these could not be read: %s",
			strings.Join(missing, ", "))
	}
	var kept, found []string
	for i := range scratch.Namespaces {
		namespace := &scratch.Namespaces[i]
		switch {
		case namespace.Labels[MarkLabel] != "":
			kept = append(kept, namespace.Name)
		case namespace.Name != corev1.NamespaceDefault && !System(namespace.Name, networks):
			found = append(found, "Namespace "+namespace.Name)
		}
	}
	for _, one := range inDefault(scratch) {
		if one.GetLabels()[MarkLabel] != "" {
			kept = append(kept, name(one))
		} else if !slices.ContainsFunc(one.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
			// which is listed itself
			return slices.Contains([]string{"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Node"},
				o.Kind)
		}) {
			found = append(found, name(one))
		}
	}
	found = append(found, guests(scratch, networks)...)
	for i := range scratch.Nodes {
		if scratch.Nodes[i].Annotations[BeforeAnnotation] != "" {
			kept = append(kept, "Node "+scratch.Nodes[i].Name)
		}
	}
	switch {
	case len(kept) > 0:
		return Kept(kept)
	case len(found) > 0:
		return NotEmpty(found)
	}
	return nil
}

// Kept refuses a scratch cluster that has these parts of an earlier rehearsal.
func Kept(parts []string) error {
	return refuse("theseus rehearse remove, with the same --context",
		"the scratch cluster has a copy of an earlier rehearsal: %s", few(parts))
}

// NotEmpty refuses a scratch cluster that has these objects of users.
func NotEmpty(found []string) error {
	return refuse("name an empty cluster with --context, or delete them",
		"the scratch cluster is not empty: it has %s", few(found))
}

// guests are the owners of pods in system namespaces that are neither Kubernetes' nor the network's own: users run pods
// there, too.
func guests(s *cluster.Snapshot, networks []*cni.Installation) []string {
	allowed := []string{v1alpha1.Namespace}
	parts := map[string]bool{}
	for _, network := range networks {
		if network.HasAgent() && network.Agent.Namespace != metav1.NamespaceSystem {
			allowed = append(allowed, network.Agent.Namespace)
		}
		if network.Maker != nil {
			allowed = append(allowed, "calico-apiserver", "calico-system", "tigera-operator")
		}
		refs := slices.Concat([]step.Ref{network.Agent}, network.Parts)
		if network.PolicyAgent != nil {
			refs = append(refs, *network.PolicyAgent)
		}
		for _, ref := range refs {
			parts[ref.Kind+" "+ref.Namespace+"/"+ref.Name] = true
		}
	}
	addons := []string{"coredns", "kube-dns", "kube-proxy", "metrics-server", "local-path-provisioner"}
	owner, found := s.Owners(), map[string]bool{}
	for i := range s.Pods {
		pod := &s.Pods[i]
		by := owner(pod)
		name := by.Kind + " " + by.Namespace + "/" + by.Name
		switch {
		case !System(pod.Namespace, networks), slices.Contains(allowed, pod.Namespace), parts[name],
			slices.Contains(addons, by.Name), by.Kind == "Node", strings.HasPrefix(pod.Spec.PriorityClassName,
				"system-"):
		default:
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// few lists the first of many names.
func few(names []string) string {
	if more := len(names) - 5; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), more)
	}
	return strings.Join(names, ", ")
}

// name is how people name an object: Deployment shop/web.
func name(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}

// Make decides on the copy. ours are the networks of the original, theirs those of the scratch cluster.
func Make(original, scratch *cluster.Snapshot, ours, theirs []*cni.Installation, options Options) (*Copy, error) {
	m := &maker{
		Copy: &Copy{Of: Mark(original.UID), answering: map[string]bool{}}, original: original, scratch: scratch,
		networks: ours, system: slices.Concat(ours, theirs), options: options,
		contents: map[contentKey]map[string]bool{}, answers: map[service][]intstr.IntOrString{},
		serving: map[string]bool{}, users: map[string]bool{corev1.NamespaceDefault: true}, classOf: map[string]string{},
		notes:    notes{evicting: map[string]bool{}, bounds: map[string]bool{}},
		defaults: map[string]*defaults{}, factor: map[corev1.ResourceName]float64{},
	}
	if err := m.classes(); err != nil {
		return nil, err
	}
	if err := m.networkSettings(theirs); err != nil {
		return nil, err
	}
	m.namespaces()
	m.held, m.finalized = holding(original)
	m.bounded()
	m.webhooks()
	if err := m.workloads(); err != nil {
		return nil, err
	}
	if err := m.certify(); err != nil {
		return nil, err
	}
	m.limitRanges()
	m.services()
	m.traffic()
	m.policies()
	m.budgets()
	m.priorities()
	m.made()
	m.lacks()
	order(m.Objects)
	slices.SortFunc(m.Workloads, func(a, b Workload) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind),
			strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(m.Left, func(a, b Left) int { return strings.Compare(a.Object, b.Object) })
	m.Left = slices.Compact(m.Left)
	return m.Copy, m.fits()
}

// maker makes one Copy.
type maker struct {
	*Copy
	original, scratch *cluster.Snapshot
	// networks are the original's, system these and the scratch cluster's.
	networks, system []*cni.Installation
	options          Options
	// classOf are the scratch cluster's nodes that play a node of the original.
	classOf map[string]string
	// users are the namespaces that are copied.
	users map[string]bool
	// contents are the keys of the Secrets and ConfigMaps that pods refer to.
	contents map[contentKey]map[string]bool
	// answers are the Services of webhooks, with the ports of their pods; serving are the namespaces of stand-ins for
	// webhooks.
	answers map[service][]intstr.IntOrString
	serving map[string]bool
	// held are the names of finalizers that keep ended pods of a workload, such as Deployment shop/web; finalized are
	// the workloads whose pods have any.
	held      map[string][]string
	finalized map[string]bool
	// defaults are those of namespaces with quotas or LimitRanges; limits are these LimitRanges.
	defaults map[string]*defaults
	limits   []*corev1.LimitRange
	// factor is the part of the original's requests that the copy's have.
	factor map[corev1.ResourceName]float64
	pods   []podOf
	notes  notes
}

// keptAnnotations are those that the copy of a pod's template has: only the network reads them, and they name nothing
// of the original.
func keptAnnotations() []string {
	return []string{"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"}
}

// annotations keeps what may be kept of an object's annotations. Others tell programs other than Kubernetes what to do,
// such as with names in a zone, addresses or secrets, and those that run on the scratch cluster would do it.
func (m *maker) annotations(object *unstructured.Unstructured, path ...string) {
	path = append(path, "metadata", "annotations")
	all, _, _ := unstructured.NestedMap(object.Object, path...)
	before := len(all)
	maps.DeleteFunc(all, func(key string, _ any) bool { return !slices.Contains(keptAnnotations(), key) })
	m.notes.annotations += before - len(all)
	unstructured.RemoveNestedField(object.Object, path...)
	if len(all) > 0 {
		_ = unstructured.SetNestedMap(object.Object, all, path...)
	}
}

// add puts an object into the copy.
func (m *maker) add(object *unstructured.Unstructured) {
	m.Objects = append(m.Objects, m.clean(object))
}

// clean is an object as the copy has it: marked, and cleaned from what belongs to the original.
func (m *maker) clean(object *unstructured.Unstructured) *unstructured.Unstructured {
	clean := objects.Clean(object)
	m.annotations(clean)
	if _, templated, _ := unstructured.NestedMap(clean.Object, "spec", "template"); templated {
		m.annotations(clean, "spec", "template")
	}
	labels := clean.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[MarkLabel] = m.Of
	clean.SetLabels(labels)
	unstructured.RemoveNestedField(clean.Object, "metadata", "ownerReferences")
	unstructured.RemoveNestedField(clean.Object, "metadata", "creationTimestamp")
	return clean
}

// leave notes an object that is not copied.
func (m *maker) leave(kind, namespace, name, why string) {
	if namespace != "" {
		name = namespace + "/" + name
	}
	m.Left = append(m.Left, Left{Object: kind + " " + name, Why: why})
}

// copied reports whether the objects of a namespace are copied.
func (m *maker) copied(namespace string) bool { return m.users[namespace] }

// encode makes plain data of a typed object.
func encode(object any, kind schema.GroupVersionKind) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil { // only values that JSON does not have, which Kubernetes' types do not have either
		panic(fmt.Sprintf("rehearsal: encode %s: %v", kind.Kind, err))
	}
	made := &unstructured.Unstructured{Object: fields}
	made.SetGroupVersionKind(kind)
	return made
}

// order puts objects in the order of creation: namespaces first, then what pods need, policies before pods.
func order(all []*unstructured.Unstructured) {
	rank := func(object *unstructured.Unstructured) int {
		switch object.GetKind() {
		case "Namespace":
			return 0
		case "PriorityClass", "Secret", "ConfigMap", "Tier", "LimitRange":
			return 1
		case "Service", "PodDisruptionBudget":
			return 3
		case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "Pod":
			return 4
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.GetNamespace(), b.GetNamespace()),
			strings.Compare(a.GetKind(), b.GetKind()), strings.Compare(a.GetName(), b.GetName()))
	})
}
