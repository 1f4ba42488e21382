package rehearsal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
)

// Class is a set of nodes that are alike in role, labels, taints, capacity and kernel.
type Class struct {
	Name         string            `json:"name"`
	ControlPlane bool              `json:"controlPlane,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Taints       []corev1.Taint    `json:"taints,omitempty"`
	Capacity     string            `json:"capacity"`
	Kernel       string            `json:"kernel,omitempty"`
	// Nodes are the original's, Plays those of the scratch cluster that play them.
	Nodes []string `json:"nodes"`
	Plays []string `json:"plays"`
}

// NodeChange is the labels and taints that a node of the scratch cluster gets.
type NodeChange struct {
	Name   string
	Labels map[string]string
	Taints []corev1.Taint
}

// Given is what a rehearsal gave a node, and nothing else of the node; it is the value of BeforeAnnotation.
type Given struct {
	// Labels have the value that the node got, and the one that it had before; nil if it had none.
	Labels map[string]GivenLabel `json:"labels,omitempty"`
	// Taints are those that the node did not have.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Relabelled are what the rehearsed change did to labels, until that is taken back.
	Relabelled map[string]Relabelled `json:"relabelled,omitempty"`
}

func (g *Given) text() (string, error) {
	text, err := json.Marshal(g)
	return string(text), err
}

// GivenLabel is a label that a rehearsal set.
type GivenLabel struct {
	Now    string  `json:"now"`
	Before *string `json:"before,omitempty"`
}

// Patch is the merge patch that gives a node, as it is now, what it lacks of the change. It fails if the node has
// changed meanwhile (resourceVersion). It is nil if nothing is to be done.
func (c NodeChange) Patch(live *corev1.Node) ([]byte, error) {
	given := Given{Labels: map[string]GivenLabel{}}
	if made(live) {
		if err := given.read(live); err != nil {
			return nil, err
		}
	}
	labels, taints := map[string]any{}, slices.Clone(live.Spec.Taints)
	for key, value := range c.Labels {
		had, has := live.Labels[key]
		if has && had == value {
			continue
		}
		labels[key] = value
		before := given.Labels[key].Before
		if _, again := given.Labels[key]; !again && has {
			before = &had
		}
		given.Labels[key] = GivenLabel{value, before}
	}
	for _, taint := range c.Taints {
		if !hasTaint(taints, taint) {
			taints, given.Taints = append(taints, taint), append(given.Taints, taint)
		}
	}
	if len(labels) == 0 && len(taints) == len(live.Spec.Taints) {
		return nil, nil
	}
	text, err := given.text()
	if err != nil {
		return nil, err
	}
	return nodePatch(live, labels, text, taints)
}

// Restore is the merge patch that takes back what a rehearsal gave a node: labels that still have its value and that no
// other program has set since, and its taints. It fails if the node has changed meanwhile. It is nil for a node that no
// rehearsal has changed: an annotation that another program wrote is not believed.
func Restore(live *corev1.Node) ([]byte, error) {
	if !made(live) {
		return nil, nil
	}
	var given Given
	if err := given.read(live); err != nil {
		return nil, err
	}
	labels := given.back(live)
	for key, label := range given.Labels {
		now, changed := labels[key]
		if !changed {
			now = valueOf(labelOf(live, key))
		}
		if now != label.Now || !changed && !wrote(live, "labels", key) {
			continue
		}
		labels[key] = valueOf(label.Before)
	}
	taints := slices.DeleteFunc(slices.Clone(live.Spec.Taints), func(t corev1.Taint) bool {
		return slices.ContainsFunc(given.Taints, func(g corev1.Taint) bool {
			return t.MatchTaint(&g) && t.Value == g.Value
		})
	})
	return nodePatch(live, labels, nil, taints)
}

// made reports whether a rehearsal has changed a node.
func made(node *corev1.Node) bool {
	return node.Annotations[BeforeAnnotation] != "" && wrote(node, "annotations", BeforeAnnotation)
}

func (g *Given) read(node *corev1.Node) error {
	if err := json.Unmarshal([]byte(node.Annotations[BeforeAnnotation]), g); err != nil {
		return fmt.Errorf("the annotation %s: %w", BeforeAnnotation, err)
	}
	if g.Labels == nil {
		g.Labels = map[string]GivenLabel{}
	}
	return nil
}

// nodePatch is a merge patch of labels, the annotation and, if they change, taints, for this version of a node.
func nodePatch(live *corev1.Node, labels map[string]any, annotation any, taints []corev1.Taint) ([]byte, error) {
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": live.ResourceVersion, "labels": labels,
		"annotations": map[string]any{BeforeAnnotation: annotation}}}
	if len(taints) != len(live.Spec.Taints) {
		patch["spec"] = map[string]any{"taints": taints}
	}
	return json.Marshal(patch)
}

func hasTaint(all []corev1.Taint, taint corev1.Taint) bool {
	return slices.ContainsFunc(all, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
}

// ownLabels are labels whose values are a node's own, or that the kubelet or the control plane of a cluster sets from
// what is there.
func ownLabels() []string {
	return []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os",
		"beta.kubernetes.io/arch", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
		"node-role.kubernetes.io/controlplane", "alpha.eksctl.io/instance-id",
		"node.kubernetes.io/exclude-from-external-load-balancers"}
}

// told are the labels of a node that tell classes apart: none that names the node itself.
func (m *maker) told(node *corev1.Node) map[string]string {
	labels := map[string]string{}
	for key, value := range node.Labels {
		named := value != "" && (value == node.Name || value == node.Labels[corev1.LabelHostname])
		if !named && !slices.Contains(ownLabels(), key) && !slices.Contains(m.options.Ignore, key) &&
			!strings.HasPrefix(key, "theseus.dev/") {
			labels[key] = value
		}
	}
	return labels
}

// repels are the taints that tell classes apart: none by which Kubernetes itself marks a node's condition.
func (m *maker) repels(node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for _, taint := range node.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") && !strings.HasPrefix(taint.Key,
			"node.cloudprovider.kubernetes.io/") && !slices.Contains(m.options.Ignore, taint.Key) {
			taint.TimeAdded = nil
			taints = append(taints, taint)
		}
	}
	slices.SortFunc(taints, func(a, b corev1.Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
	})
	return taints
}

// gib is a number of bytes in GiB, in steps of 4 above 8: nodes of one type differ by some MiB.
func gib(bytes int64) int64 {
	n := (bytes + 1<<29) >> 30
	if n > 8 {
		n = (n + 2) / 4 * 4
	}
	return n
}

// capacity is a node's capacity for people.
func capacity(node *corev1.Node) string {
	list := node.Status.Capacity
	text := fmt.Sprintf("%s, %d GiB, %s", cluster.Count(int(list.Cpu().Value()), "CPU"), gib(list.Memory().Value()),
		cluster.Count(int(list.Pods().Value()), "pod"))
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if strings.Contains(string(name), "/") { // such as nvidia.com/gpu
			count := list[name]
			text += ", " + count.String() + " " + string(name)
		}
	}
	return text
}

// Needs are what a scratch cluster must have at least.
type Needs struct {
	// Network is the name of its network, and Version that of the original's, if known.
	Network string `json:"network"`
	Version string `json:"version,omitempty"`
	// Workers and ControlPlane are numbers of nodes: one for each class.
	Workers      int     `json:"workers"`
	ControlPlane int     `json:"controlPlane"`
	Classes      []Class `json:"classes"`
}

// NeedsOf says what a scratch cluster needs for the copy of a cluster with these networks.
func NeedsOf(original *cluster.Snapshot, ours []*cni.Installation, options Options) (*Needs, error) {
	if err := oneNetwork(ours); err != nil {
		return nil, err
	}
	m := &maker{Copy: &Copy{}, original: original, options: options}
	if err := m.classify(); err != nil {
		return nil, err
	}
	needs := &Needs{Network: ours[0].CNI, Version: ours[0].Version, Classes: m.Classes}
	for _, class := range m.Classes {
		if class.ControlPlane {
			needs.ControlPlane++
		} else {
			needs.Workers++
		}
	}
	return needs, nil
}

// classify sorts the original's nodes into classes.
func (m *maker) classify() error {
	for _, key := range m.options.Ignore {
		if !slices.Contains([]string{"kernel", "capacity"}, key) &&
			!slices.ContainsFunc(m.original.Nodes, func(n corev1.Node) bool {
				_, label := n.Labels[key]
				return label || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
			}) {
			return refuse("--dry-run without it prints the classes, with their labels and taints",
				"--ignore %s: no node of the original has such a label or taint", key)
		}
	}
	at := map[string]int{}
	for _, node := range byName(m.original.Nodes) {
		class := Class{ControlPlane: joint.IsControlPlane(node), Labels: m.told(node), Taints: m.repels(node)}
		if !slices.Contains(m.options.Ignore, "capacity") {
			class.Capacity = capacity(node)
		}
		if !slices.Contains(m.options.Ignore, "kernel") {
			class.Kernel = node.Status.NodeInfo.KernelVersion
		}
		key, err := json.Marshal(class) // its maps are sorted
		if err != nil {
			return err
		}
		i, known := at[string(key)]
		if !known {
			i = len(m.Classes)
			at[string(key)] = i
			class.Name = fmt.Sprintf("class-%d", i+1)
			m.Classes = append(m.Classes, class)
		}
		m.Classes[i].Nodes = append(m.Classes[i].Nodes, node.Name)
	}
	return nil
}

// classes sorts the original's nodes into classes, and gives each class nodes of the scratch cluster.
func (m *maker) classes() error {
	if err := m.classify(); err != nil {
		return err
	}
	for _, control := range []bool{false, true} {
		if err := m.cast(control); err != nil {
			return err
		}
	}
	workers, plays := 0, 0
	for _, class := range m.Classes {
		keepsOff := slices.ContainsFunc(class.Taints, func(t corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule
		})
		if !class.ControlPlane || !keepsOff { // else users' pods do not run there
			workers, plays = workers+len(class.Nodes), plays+len(class.Plays)
		}
	}
	m.Share = 1
	if workers > 0 {
		m.Share = min(1, float64(plays)/float64(workers))
	}
	return nil
}

func byName(nodes []corev1.Node) []*corev1.Node {
	var all []*corev1.Node
	for i := range nodes {
		all = append(all, &nodes[i])
	}
	slices.SortFunc(all, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// cast gives the classes of one role their nodes: one each, and each further one to the class that has the fewest for
// its size.
func (m *maker) cast(control bool) error {
	var classes []*Class
	var nodes []*corev1.Node
	for i := range m.Classes {
		if m.Classes[i].ControlPlane == control {
			classes = append(classes, &m.Classes[i])
		}
	}
	for _, node := range byName(m.scratch.Nodes) {
		ready := cluster.NodeReady(node) || m.options.Manifest != nil && waitsForNetwork(node)
		if joint.IsControlPlane(node) == control && ready && !node.Spec.Unschedulable {
			nodes = append(nodes, node)
		}
	}
	role := "worker"
	if control {
		role = "control-plane node"
	}
	if len(classes) == 0 {
		return nil
	}
	if len(nodes) < len(classes) {
		hint := "add a " + role
		if len(classes) > 1 {
			hint = "add nodes, or merge classes: --ignore KEY ignores a difference (a label, a taint, kernel or " +
				"capacity); " +
				"the classes differ in " + differences(classes)
		}
		return refuse(hint,
			"the scratch cluster is too small: it has %s, and the original has %s",
			cluster.Count(len(nodes), "ready, schedulable "+role), classCount(len(classes), role))
	}
	slices.SortStableFunc(classes, func(a, b *Class) int { return len(b.Nodes) - len(a.Nodes) })
	for i, node := range nodes {
		class := classes[min(i, len(classes)-1)]
		if i >= len(classes) {
			class = slices.MaxFunc(classes, func(a, b *Class) int {
				return cmp.Compare(len(a.Nodes)*len(b.Plays), len(b.Nodes)*len(a.Plays))
			})
		}
		class.Plays = append(class.Plays, node.Name)
		m.change(node, class)
	}
	for _, class := range classes {
		for i, name := range class.Nodes {
			m.classOf[name] = class.Plays[i%len(class.Plays)]
		}
	}
	return nil
}

func classCount(n int, role string) string {
	if n == 1 {
		return "1 class of " + role + "s"
	}
	return fmt.Sprintf("%d classes of %ss", n, role)
}

// differences names what tells classes apart.
func differences(classes []*Class) string {
	differ := map[string]bool{}
	for _, other := range classes[1:] {
		first := classes[0]
		for _, labels := range []map[string]string{first.Labels, other.Labels} {
			for key := range labels {
				a, hasA := first.Labels[key]
				b, hasB := other.Labels[key]
				if a != b || hasA != hasB {
					differ[key] = true
				}
			}
		}
		for _, taint := range slices.Concat(first.Taints, other.Taints) {
			if !slices.Contains(first.Taints, taint) || !slices.Contains(other.Taints, taint) {
				differ[taint.Key] = true
			}
		}
		if first.Kernel != other.Kernel {
			differ["kernel"] = true
		}
		if first.Capacity != other.Capacity {
			differ["capacity"] = true
		}
	}
	return few(slices.Sorted(maps.Keys(differ)))
}

// change notes what a node of the scratch cluster gets from its class. It keeps the taints that it has. A taint that
// evicts pods would evict those of the scratch cluster, too; its copy only keeps pods off.
func (m *maker) change(node *corev1.Node, class *Class) {
	change := NodeChange{Name: node.Name, Labels: map[string]string{}}
	for key, value := range class.Labels {
		if had, has := node.Labels[key]; !has || had != value {
			change.Labels[key] = value
		}
	}
	for key, value := range m.roles(class) {
		if _, has := node.Labels[key]; !has {
			change.Labels[key] = value
		}
	}
	for _, taint := range class.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			taint.Effect = corev1.TaintEffectNoSchedule
			m.notes.evicting[taint.Key] = true
		}
		if !hasTaint(node.Spec.Taints, taint) && !hasTaint(change.Taints, taint) {
			change.Taints = append(change.Taints, taint)
		}
	}
	if len(change.Labels) > 0 || len(change.Taints) > 0 {
		m.Nodes = append(m.Nodes, change)
	}
}

// roles are the labels of a control plane that all nodes of the class have: they tell no classes apart, but networks
// and pods select nodes by them.
func (m *maker) roles(class *Class) map[string]string {
	if !class.ControlPlane {
		return nil
	}
	roles, n := map[string]string{}, map[string]int{}
	for i := range m.original.Nodes {
		node := &m.original.Nodes[i]
		for key, value := range node.Labels {
			if strings.HasPrefix(key, "node-role.kubernetes.io/") && slices.Contains(class.Nodes, node.Name) {
				roles[key], n[key] = value, n[key]+1
			}
		}
	}
	maps.DeleteFunc(roles, func(key, _ string) bool { return n[key] < len(class.Nodes) })
	return roles
}

// tolerates are a pod's tolerations: one of a taint that evicts is also one of its copy, which does not.
func (m *maker) tolerates(old []corev1.Toleration) []corev1.Toleration {
	all := slices.Clone(old)
	for _, one := range old {
		if one.Effect == corev1.TaintEffectNoExecute && (one.Key == "" || m.notes.evicting[one.Key]) {
			one.Effect, one.TolerationSeconds = corev1.TaintEffectNoSchedule, nil
			all = append(all, one)
		}
	}
	return all
}
