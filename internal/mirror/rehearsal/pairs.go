package rehearsal

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/policy"
	"github.com/theseus-cni/theseus/internal/network/sample"
)

const (
	// mostAsked bounds the connections that stand-ins open all the time.
	mostAsked = 24
	// askFlag is the argument of a stand-in that names them. Until the Services have addresses, @NAMESPACE/NAME is in
	// place of each one's (Address).
	askFlag = "--ask="
	// askUDP begins the address of one that is asked by UDP.
	askUDP = "udp/"
	// askedPrefix begins the names of Services that the copy has only for stand-ins to ask.
	askedPrefix = "theseus-asked-"
)

// Pair is a TCP connection that the stand-ins of a workload open all the time, or a datagram that they send and that
// is sent back, through a Service of another.
type Pair struct {
	From string `json:"from"` // such as Deployment shop/web
	To   string `json:"to"`
	// Service is shop/db; Port is its port, and Target that of the pods.
	Service string `json:"service"`
	Port    int    `json:"port"`
	Target  int    `json:"target"`
	// Protocol is UDP; empty for TCP.
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	// Denied and DeniedAfter are what policies say of it on the present network and on that after the change.
	Denied      bool `json:"denied,omitempty"`
	DeniedAfter bool `json:"deniedAfter,omitempty"`
}

// String is the pair in a line.
func (p Pair) String() string {
	return fmt.Sprintf("%s to %s (Service %s, %s)", p.From, p.To, p.Service, p.port())
}

// port is the Service's port for people.
func (p Pair) port() string { return strings.TrimSpace(fmt.Sprintf("%s port %d", p.Protocol, p.Port)) }

// at is the Service with its port.
func (p Pair) at() string {
	if p.Protocol != "" {
		return fmt.Sprintf("%s:%d/%s", p.Service, p.Port, p.Protocol)
	}
	return fmt.Sprintf("%s:%d", p.Service, p.Port)
}

// target is the port of the pods.
func (p Pair) target() policy.Port {
	return policy.Port{Protocol: protocolOf(p.Protocol), Number: p.Target}
}

func protocolOf(protocol corev1.Protocol) corev1.Protocol {
	return cmp.Or(protocol, corev1.ProtocolTCP)
}

// says is what the policies say of a pair.
func (p Pair) says() string {
	word := func(denied bool) string {
		if denied {
			return "denied"
		}
		return "allowed"
	}
	if p.Denied == p.DeniedAfter {
		return word(p.Denied)
	}
	return word(p.Denied) + ", then " + word(p.DeniedAfter)
}

// modelOf has the policies of a cluster before a change to another network, and after; after may be nil.
func modelOf(s *cluster.Snapshot, before, after *cni.Installation) *policy.Model {
	if after == nil {
		after = before
	}
	return policy.Build(s, policy.ProfileOf(before), policy.ProfileOf(after))
}

// traffic chooses the connections that stand-ins open, and has them do so. A workload without a Service that sends to
// it alone gets one. The objects were made before, so it edits them.
func (m *maker) traffic() {
	if len(m.networks) != 1 {
		return
	}
	copies := map[string]*podOf{}
	for i := range m.pods {
		copies[m.pods[i].workload] = &m.pods[i]
	}
	of := map[string]string{} // the workload that a pod stands for
	for workload, pod := range running(m.original) {
		if copies[workload] != nil {
			of[key(pod)] = workload
		}
	}
	owner := m.original.Owners()
	through := func(pod *corev1.Pod, port policy.Port) (service string, number int) {
		return m.through(owner, pod, port)
	}
	pairs := sample.Pairs(sample.Options{Model: modelOf(m.original, m.networks[0], m.options.After),
		Pods: m.original.Pods, Most: mostAsked,
		From: func(pod *corev1.Pod) bool { return of[key(pod)] != "" },
		UDP:  true, To: func(pod *corev1.Pod, port policy.Port) bool {
			if of[key(pod)] == "" {
				return false
			}
			_, number := through(pod, port)
			return number > 0 || m.alone(copies[of[key(pod)]])
		}})
	byName := map[string]*corev1.Pod{}
	for i := range m.original.Pods {
		byName[key(&m.original.Pods[i])] = &m.original.Pods[i]
	}
	asks := map[string][]string{}
	made := map[string]string{}
	for _, one := range pairs {
		to := byName[one.To.Namespace+"/"+one.To.Name]
		pair := Pair{From: of[one.From.Namespace+"/"+one.From.Name], To: of[key(to)], Target: one.Port,
			Denied: one.Denied, DeniedAfter: one.DeniedAfter}
		scheme := ""
		if one.Protocol == corev1.ProtocolUDP {
			pair.Protocol, scheme = one.Protocol, askUDP
		}
		if pair.Service, pair.Port = through(to, pair.target()); pair.Port == 0 {
			at := pair.To + ":" + pair.target().String()
			if made[at] == "" {
				made[at] = m.asked(copies[pair.To], pair.target(), len(made))
			}
			pair.Service, pair.Port = made[at], one.Port
		}
		asks[pair.From] = append(asks[pair.From], fmt.Sprintf("%d=%s@%s:%d", len(m.Traffic), scheme, pair.Service,
			pair.Port))
		m.Traffic = append(m.Traffic, pair)
	}
	m.Extra += len(made)
	for _, object := range m.Objects {
		if all := asks[name(object)]; len(all) > 0 {
			editArgs(object, func(args []string) []string { return append(args, askFlag+strings.Join(all, ",")) })
		}
	}
}

// through is the Service by which a port of a pod's workload can be reached, if one sends to its pods alone.
func (m *maker) through(owner func(*corev1.Pod) cluster.Owner, pod *corev1.Pod, port policy.Port) (service string,
	number int) {
	workload := owner(pod)
	for i := range m.original.Services {
		one := &m.original.Services[i]
		local := one.Spec.InternalTrafficPolicy != nil &&
			*one.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
		if local || one.Spec.ClusterIP == corev1.ClusterIPNone || one.Spec.Type == corev1.ServiceTypeExternalName ||
			!behind(one, pod.Namespace, pod.Labels) {
			continue
		}
		set := labels.SelectorFromSet(one.Spec.Selector)
		if slices.ContainsFunc(m.original.Pods, func(p corev1.Pod) bool {
			return p.Namespace == one.Namespace && set.Matches(labels.Set(p.Labels)) && owner(&p) != workload
		}) {
			continue
		}
		for _, p := range one.Spec.Ports {
			if protocolOf(p.Protocol) == port.Protocol && sendsTo(p, pod) == int32(port.Number) {
				return one.Namespace + "/" + one.Name, int(p.Port)
			}
		}
	}
	return "", 0
}

// sendsTo is the number of the port of a pod to which a Service's port sends; 0 if the pod has none of its name.
func sendsTo(port corev1.ServicePort, pod *corev1.Pod) int32 {
	switch {
	case port.TargetPort.Type == intstr.Int && port.TargetPort.IntVal == 0:
		return port.Port
	case port.TargetPort.Type == intstr.Int:
		return port.TargetPort.IntVal
	}
	for i := range pod.Spec.Containers {
		if n := portNumber(&pod.Spec.Containers[i], port.TargetPort); n > 0 {
			return n
		}
	}
	return 0
}

// alone reports whether a Service can send to the pods of a workload of the copy, and to no others.
func (m *maker) alone(pods *podOf) bool {
	set := labels.SelectorFromSet(pods.labels)
	return len(pods.labels) > 0 && !slices.ContainsFunc(m.pods, func(other podOf) bool {
		return other.namespace == pods.namespace && other.workload != pods.workload &&
			set.Matches(labels.Set(other.labels))
	})
}

// asked adds a Service with which a port of a workload can be asked, and returns its name.
func (m *maker) asked(pods *podOf, port policy.Port, n int) string {
	selector := map[string]any{}
	for label, value := range pods.labels {
		selector[label] = value
	}
	called := askedPrefix + strconv.Itoa(n)
	m.add(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": called, "namespace": pods.namespace},
		"spec": map[string]any{"selector": selector, "ports": []any{map[string]any{"port": int64(port.Number),
			"targetPort": int64(port.Number), "protocol": string(port.Protocol)}}}}})
	return pods.namespace + "/" + called
}

// editArgs edits the arguments of the first container of a workload.
func editArgs(object *unstructured.Unstructured, edit func([]string) []string) {
	at := []string{"spec", "template", "spec", "containers"}
	if object.GetKind() == "Pod" {
		at = []string{"spec", "containers"}
	}
	containers, _, _ := unstructured.NestedSlice(object.Object, at...)
	if len(containers) == 0 {
		return
	}
	first, _ := containers[0].(map[string]any)
	args, _, _ := unstructured.NestedStringSlice(first, "args")
	if args = edit(args); len(args) > 0 {
		_ = unstructured.SetNestedStringSlice(first, args, "args")
		_ = unstructured.SetNestedSlice(object.Object, containers, at...)
	}
}

// Address writes the addresses of Services into the arguments of a workload's stand-ins; of says that of shop/db. A
// connection to a Service without one is not asked.
func Address(object *unstructured.Unstructured, of func(service string) (string, error)) (err error) {
	editArgs(object, func(args []string) []string {
		for i, arg := range args {
			list, asks := strings.CutPrefix(arg, askFlag)
			if !asks {
				continue
			}
			var all []string
			for one := range strings.SplitSeq(list, ",") {
				before, rest, open := strings.Cut(one, "@")
				service, port, _ := strings.Cut(rest, ":")
				if !open {
					all = append(all, one)
					continue
				}
				var ip string
				if ip, err = of(service); err != nil {
					return nil
				}
				if strings.Contains(ip, ":") {
					ip = "[" + ip + "]"
				}
				if ip != "" && ip != corev1.ClusterIPNone {
					all = append(all, before+ip+":"+port)
				}
			}
			args[i] = askFlag + strings.Join(all, ",")
		}
		return args
	})
	return err
}

// Reread asks the policies of the copy about its connections, before the change and after: its pods have other
// addresses than the original's. unlike are those of which they say something else, or nothing, by their places in
// Traffic.
func (c *Copy) Reread(copied *cluster.Snapshot, before, after *cni.Installation) (unlike map[int]string) {
	unlike = map[int]string{}
	if len(c.Traffic) == 0 {
		return unlike
	}
	model, pods := modelOf(copied, before, after), running(copied)
	for i := range c.Traffic {
		pair := &c.Traffic[i]
		from, to := pods[pair.From], pods[pair.To]
		if from == nil || to == nil {
			unlike[i] = "one of its workloads has no pod that runs"
			continue
		}
		denied, later, known := sample.Verdicts(model, key(from), key(to), pair.target())
		if !known || denied != pair.Denied {
			unlike[i] = "the policies of the copy say something else of it than those of the original"
			continue
		}
		pair.DeniedAfter = later
	}
	return unlike
}

// Asking are the workloads whose stand-ins open connections.
func (c *Copy) Asking() map[string]bool {
	all := map[string]bool{}
	for _, pair := range c.Traffic {
		all[pair.From] = true
	}
	return all
}
