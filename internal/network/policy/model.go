package policy

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

// Side is one of the two profiles of a model.
type Side int

// Before and After are the profiles in the order of Build's arguments.
const (
	Before Side = iota
	After
	// Both means both sides.
	Both Side = -1
)

// Model is a snapshot's pods and policies under two profiles.
type Model struct {
	readings   [2]*reading
	namespaces map[string]*namespace
	pods       []*corev1.Pod
	classes    []*class
	endpoints  []*endpoint
	// byPod finds the endpoint of each of pods.
	byPod  []*endpoint
	byName map[string]int

	sets map[string]*set
	nets map[string]*net
	// labels are the keys that any selector uses; accounts says whether a selector uses service accounts.
	labels   map[string]bool
	accounts bool
	// accountOf are the labels of service accounts, by namespace/name, if the snapshot has any.
	accountOf     map[string]map[string]string
	accountsKnown bool
	networkSets   []networkSet
	// portNames are the named ports that any rule uses.
	portNames map[namedPort]bool
	byNames   []*split
	byAddress [2][2][]neighbours

	compared    bool
	differences []Difference
	candidates  []Probe

	// division divides all addresses; beyond are ranges that only matter outside of the cluster.
	division *atlas
	beyond   []netip.Prefix
	// nodeAddresses are the addresses of all nodes.
	nodeAddresses addresses

	gaps   []Gap
	gapped map[Gap]bool
	// veils are the pods that policies which are left out may select.
	veils []*set
}

// reading is the policies under one profile.
type reading struct {
	profile  Profile
	tiers    []tier
	policies []*policy
	// selecting are, by direction and class, the policies in the order in which they are evaluated.
	selecting [2][][]*policy
}

type namespace struct {
	name   string
	labels map[string]string
}

// class is a set of pods that policies can only distinguish by address.
type class struct {
	index     int32
	namespace *namespace
	// labels and account are those of its first pod: the others do not differ in anything that policies use.
	labels    map[string]string
	account   string
	names     map[namedPort]spans
	endpoints []*endpoint
	// derived caches the labels including those that Calico and Cilium add.
	derived map[string]string
}

// endpoint is the pods of a class whose addresses no policy can distinguish; class is nil for hostNetwork pods, which
// networks treat like the node itself.
type endpoint struct {
	index int32
	class *class
	// outside is the address of what is no pod; then there is no class either.
	outside netip.Addr
	// addresses are by side and role: as a source, as a destination.
	addresses [2][2]spans
	pods      []int32
}

// address returns the endpoint's address for the policies of the pod at the other end.
func (e *endpoint) address(side Side, direction Direction) spans { return e.addresses[side][direction] }

// Gap is a feature of a policy that is not modelled, so that verdicts may be wrong or undecided.
type Gap struct {
	Policy finding.Subject
	What   string
	// LeftOut is true if no verdict takes the policy, or a rule of it, into account.
	LeftOut bool
}

// Build makes the model of a snapshot under two profiles.
func Build(snapshot *cluster.Snapshot, before, after Profile) *Model {
	m := &Model{
		namespaces: map[string]*namespace{}, sets: map[string]*set{}, nets: map[string]*net{},
		labels: map[string]bool{}, portNames: map[namedPort]bool{}, gapped: map[Gap]bool{},
		accountOf: map[string]map[string]string{},
	}
	for i := range snapshot.Namespaces {
		m.namespaces[snapshot.Namespaces[i].Name] = &namespace{snapshot.Namespaces[i].Name,
			snapshot.Namespaces[i].Labels}
	}
	for i := range snapshot.Nodes {
		m.nodeAddresses = m.nodeAddresses.union(addressesOfNode(&snapshot.Nodes[i]))
	}
	for _, object := range snapshot.OtherOf("", "ServiceAccount") {
		m.accountOf[object.GetNamespace()+"/"+object.GetName()] = object.GetLabels()
		m.accountsKnown = true
	}
	m.unevaluated(snapshot, before, after)
	for side, profile := range []Profile{before, after} {
		m.readings[side] = m.read(snapshot, profile)
	}
	m.classify(snapshot)
	m.fill()
	for _, r := range m.readings {
		m.selectPods(r)
	}
	slices.SortStableFunc(m.gaps, func(a, b Gap) int {
		return cmp.Or(compareSubjects(a.Policy, b.Policy), cmp.Compare(a.What, b.What))
	})
	return m
}

func compareSubjects(a, b finding.Subject) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Gaps returns the features that are not modelled, in order.
func (m *Model) Gaps() []Gap { return m.gaps }

func (m *Model) gap(policy finding.Subject, what string) {
	m.note(Gap{Policy: policy, What: what})
}

func (m *Model) note(g Gap) {
	if !m.gapped[g] {
		m.gapped[g] = true
		m.gaps = append(m.gaps, g)
	}
}

// set returns the set of a scope; different scopes must have different keys.
func (m *Model) set(key string, s scope) *set {
	if found, ok := m.sets[key]; ok {
		return found
	}
	made := &set{key: key, scope: s}
	m.sets[key] = made
	for _, label := range s.labels {
		m.labels[label] = true
	}
	m.accounts = m.accounts || s.accounts
	return made
}

// net returns the list of valid ranges, and reports invalid ones.
func (m *Model) net(ref finding.Subject, texts ...string) *net {
	var prefixes []netip.Prefix
	for _, text := range texts {
		prefix, ok := parsePrefix(text)
		if !ok {
			m.gap(ref, "the address range "+text+" cannot be read")
			continue
		}
		prefixes = append(prefixes, prefix)
	}
	key := strings.Join(texts, " ")
	if found, ok := m.nets[key]; ok {
		return found
	}
	made := &net{prefixes: prefixes}
	m.nets[key] = made
	return made
}

// fill finds the members of every set.
func (m *Model) fill() {
	find := index(m.classes)
	for _, s := range m.sets {
		if s.scope.nobody {
			continue
		}
		for _, c := range find.candidates(s.scope) {
			if s.scope.holds(m.classes[c]) {
				s.classes = append(s.classes, c)
			}
		}
	}
}

func (s scope) holds(c *class) bool {
	return (s.namespace == "" || s.namespace == c.namespace.name) &&
		(s.inNamespace == nil || s.inNamespace(c.namespace)) &&
		(s.pod == nil || s.pod(c))
}

// catalogue indexes classes by the properties that most selectors use.
type catalogue struct {
	all         []int32
	byNamespace map[string][]int32
	byLabel     map[[2]string][]int32
}

func index(classes []*class) catalogue {
	found := catalogue{byNamespace: map[string][]int32{}, byLabel: map[[2]string][]int32{}}
	for i, c := range classes {
		at := int32(i)
		found.all = append(found.all, at)
		found.byNamespace[c.namespace.name] = append(found.byNamespace[c.namespace.name], at)
		for label, value := range c.labels {
			found.byLabel[[2]string{label, value}] = append(found.byLabel[[2]string{label, value}], at)
		}
	}
	return found
}

// candidates returns classes that include all members.
func (c catalogue) candidates(s scope) []int32 {
	shortest := c.all
	if s.namespace != "" {
		shortest = c.byNamespace[s.namespace]
	}
	if s.label == "" {
		return shortest
	}
	var labelled []int32
	for _, value := range s.values {
		labelled = append(labelled, c.byLabel[[2]string{s.label, value}]...)
	}
	if len(labelled) < len(shortest) {
		slices.Sort(labelled)
		return slices.Compact(labelled)
	}
	return shortest
}

// selectPods gives each class the policies that select it.
func (m *Model) selectPods(r *reading) {
	slices.SortStableFunc(r.policies, comparePolicies)
	for direction := range r.selecting {
		r.selecting[direction] = make([][]*policy, len(m.classes))
		for _, p := range r.policies {
			if !p.governs[direction] {
				continue
			}
			for _, c := range p.pods.classes {
				r.selecting[direction][c] = append(r.selecting[direction][c], p)
			}
		}
	}
}

func comparePolicies(a, b *policy) int {
	return cmp.Or(a.tier-b.tier, cmp.Compare(a.order, b.order), cmp.Compare(a.key, b.key))
}

// classify sorts pods into classes and endpoints. It skips finished pods and Theseus' own.
func (m *Model) classify(snapshot *cluster.Snapshot) {
	a := m.atlas()
	classes, endpoints := map[string]*class{}, map[string]*endpoint{}
	var key []byte
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
			pod.Labels[v1alpha1.LabelManaged] != "" {
			continue
		}
		m.pods = append(m.pods, pod)
		var c *class
		if !pod.Spec.HostNetwork {
			key = m.classKey(key[:0], pod)
			if c = classes[string(key)]; c == nil {
				c = m.newClass(pod)
				classes[string(key)] = c
			}
		}
		addresses := m.addresses(a, pod)
		key = endpointKey(key[:0], c, addresses)
		e := endpoints[string(key)]
		if e == nil {
			e = &endpoint{index: int32(len(m.endpoints)), class: c, addresses: addresses}
			endpoints[string(key)] = e
			m.endpoints = append(m.endpoints, e)
			if c != nil {
				c.endpoints = append(c.endpoints, e)
			}
		}
		e.pods = append(e.pods, int32(len(m.pods)-1))
		m.byPod = append(m.byPod, e)
	}
}

func (m *Model) newClass(pod *corev1.Pod) *class {
	c := &class{index: int32(len(m.classes)), labels: pod.Labels, account: pod.Spec.ServiceAccountName,
		names: m.namesOf(pod)}
	c.namespace = m.namespaces[pod.Namespace]
	if c.namespace == nil {
		c.namespace = &namespace{name: pod.Namespace}
		m.namespaces[pod.Namespace] = c.namespace
	}
	m.classes = append(m.classes, c)
	return c
}

// classKey appends the properties of a pod that policies can use, except addresses.
func (m *Model) classKey(key []byte, pod *corev1.Pod) []byte {
	text := func(s string) { key = append(append(key, s...), 0) }
	text(pod.Namespace)
	if m.accounts {
		text(pod.Spec.ServiceAccountName)
	}
	var relevant []string
	for label := range pod.Labels {
		if m.labels[label] {
			relevant = append(relevant, label)
		}
	}
	slices.Sort(relevant)
	for _, label := range relevant {
		text(label)
		text(pod.Labels[label])
	}
	return appendNames(key, m.namesOf(pod))
}

// appendNames appends named ports in a canonical form.
func appendNames(key []byte, names map[namedPort]spans) []byte {
	for _, name := range slices.SortedFunc(maps.Keys(names), func(a, b namedPort) int {
		return cmp.Or(cmp.Compare(a.name, b.name), a.protocol-b.protocol)
	}) {
		key = append(key, 1, byte(name.protocol))
		key = append(append(key, name.name...), 0)
		key = appendSpans(key, names[name])
	}
	return key
}

// namesOf returns the named ports of a pod that a rule uses; nil for most pods.
func (m *Model) namesOf(pod *corev1.Pod) map[namedPort]spans {
	if len(m.portNames) == 0 {
		return nil
	}
	var names map[namedPort]spans
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			protocol := port.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			name := namedPort{protocolAt(protocol), port.Name}
			if !m.portNames[name] {
				continue
			}
			if names == nil {
				names = map[namedPort]spans{}
			}
			names[name] = names[name].union(protocolPorts(name.protocol, int(port.ContainerPort),
				int(port.ContainerPort)))
		}
	}
	return names
}

func endpointKey(key []byte, c *class, addresses [2][2]spans) []byte {
	class := ^uint32(0)
	if c != nil {
		class = uint32(c.index)
	}
	key = binary.BigEndian.AppendUint32(key, class)
	for _, roles := range addresses {
		for _, address := range roles {
			key = binary.BigEndian.AppendUint32(key, uint32(len(address)))
			key = appendSpans(key, address)
		}
	}
	return key
}

func appendSpans(key []byte, set spans) []byte {
	for _, r := range set {
		key = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(key, r.first), r.last)
	}
	return key
}

// atlas makes the atlas of all ranges in policies and profiles.
func (m *Model) atlas() *atlas {
	var prefixes []netip.Prefix
	for _, n := range m.nets {
		prefixes = append(prefixes, n.prefixes...)
	}
	for _, r := range m.readings {
		prefixes = append(prefixes, r.profile.Pods...)
	}
	a := newAtlas(prefixes)
	m.division = a
	for _, n := range m.nets {
		n.ranges = a.set(n.prefixes)
	}
	return a
}

// addresses returns a pod's addresses under each profile, as a source and as a destination. Equal ones share memory.
func (m *Model) addresses(a *atlas, pod *corev1.Pod) (found [2][2]spans) {
	own, known := parseAddress(pod.Status.PodIP)
	if pod.Spec.HostNetwork && !known {
		own, known = parseAddress(pod.Status.HostIP)
	}
	for side, r := range m.readings {
		if side == int(After) && r.profile.sameAddresses(m.readings[Before].profile) {
			found[After] = found[Before]
			break
		}
		ranges := r.profile.rangesLike(own, known)
		var at spans
		switch {
		case known && (pod.Spec.HostNetwork || len(ranges) == 0 || holds(ranges, own)):
			at = a.shared(span{a.at(own), a.at(own)})
		case len(ranges) > 0:
			at = a.shared(a.set(ranges)...)
		default: // anywhere
			at = a.shared(span{0, uint32(len(a.starts) - 1)})
		}
		found[side] = [2]spans{at, at}
		if pod.Spec.HostNetwork && r.profile.Tunnelled {
			found[side][Ingress] = a.shared(at.union(a.set(ranges))...)
		}
	}
	return found
}

func holds(prefixes []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
}

// Idle returns the policies that only the second profile enforces and that select no pod, in order.
func (m *Model) Idle() []finding.Subject {
	enforced := map[finding.Subject]bool{}
	for _, p := range m.readings[Before].policies {
		enforced[p.ref] = true
	}
	var found []finding.Subject
	for _, p := range m.readings[After].policies {
		if !enforced[p.ref] && len(p.pods.classes) == 0 && !slices.Contains(found, p.ref) {
			found = append(found, p.ref)
		}
	}
	return found
}
