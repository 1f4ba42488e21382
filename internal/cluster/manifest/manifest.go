// Package manifest has Theseus' own objects as data: its namespace and CRDs, the agent and its RBAC objects,
// the probe pods with their Services and NetworkPolicy, and node tasks. The package does not apply them.
// Callers use server-side apply, so the objects contain no field that only the API server writes.
package manifest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Names of objects and labels that other packages use.
const (
	// AgentName is the name of the agent's DaemonSet, ServiceAccount and roles.
	AgentName = "theseus-agent"
	// HostProberName is the name of the DaemonSet that probes from and to the addresses of nodes.
	HostProberName = "theseus-probe-host"
	// LabelApp identifies the component of Theseus; on the agent's pods its value is AgentName.
	LabelApp = "app.kubernetes.io/name"
	// AgentSelector selects the agent's pods.
	AgentSelector = LabelApp + "=" + AgentName
	// LabelNode has the NodeValue of the node of a NodeTask or a probe pod.
	LabelNode = "theseus.dev/node"
	// LabelJoined marks the probe pod of a node that joined during a guard. No step of the plan names it.
	LabelJoined = "theseus.dev/joined"
	// PolicyName is the name of the NetworkPolicy that blocks the denied ports of probe pods.
	PolicyName = "theseus-probe-deny"
	// BenchName is the name of a benchmark's Service, and begins the names of its pods.
	BenchName = "theseus-bench"
	// LabelBench marks the pods of a benchmark and its Service; its value is the part in it.
	LabelBench = "theseus.dev/bench"
	// LabelBenchID tells the objects of one benchmark from those of another.
	LabelBenchID = "theseus.dev/bench-id"
	// LabelBenchClient has the name of a client of a benchmark: a policy admits one.
	LabelBenchClient = "theseus.dev/bench-client"
)

// Ports of the probe servers. The prober of a node's host serves on the node's own address at these plus HostOffset.
const (
	PortUDP    = 7001 // echoes datagrams
	PortTCP    = 7002 // echoes on connections, long-lived or new
	PortSink   = 7005 // of a benchmark: reads streams to their end
	PortHTTP   = 7006 // of a benchmark
	PortDenied = 7009 // served for UDP and TCP, blocked by policy
	// PortWork is where the client of a benchmark puts load on a path, on its pod's loopback.
	PortWork   = 7007
	HostOffset = 100
	// SecondOffset is added to the UDP and TCP ports for the second responder of a prober's pod.
	SecondOffset = 2
	// HostPortOffset is added to the TCP ports of probe pods for the ports of their nodes that lead to them.
	HostPortOffset = 200
	PortAlive      = 7110 // the agent accepts connections here, on loopback, while it runs
	// PortController serves /healthz of the controller, on loopback.
	PortController = 7111
	// PortIntroduce accepts connections on loopback when all pods are introduced to the other network's agents.
	PortIntroduce = 7114
)

// Folders on a node, mounted under the same path in the containers.
const (
	// RunDir holds the agent's state: it survives a restart of the agent, but not of the node.
	RunDir = "/run/theseus"
	// ProbeDir holds the files that the agent and the probers of its node exchange.
	ProbeDir = RunDir + "/probe"
)

// ProberUser is the user and the group that probers run as.
const ProberUser = 65532

// enforce is the pod security label: it says which pods are allowed in a namespace.
const enforce = "pod-security.kubernetes.io/enforce"

// Namespace is the namespace of all of Theseus' objects. Its label allows privileged pods.
func Namespace() *unstructured.Unstructured {
	namespace := NamespaceAtRest()
	labels := namespace.GetLabels()
	labels[enforce] = "privileged"
	namespace.SetLabels(labels)
	return namespace
}

// annotationTemporary marks a namespace that was made for a look or a benchmark, and goes with it.
const annotationTemporary = "theseus.dev/temporary"

// NamespaceForNow is Namespace for a look at the nodes or a benchmark, where there was none. If the process that made
// it is killed, the next one knows by the mark that Theseus made it.
func NamespaceForNow() *unstructured.Unstructured {
	namespace := Namespace()
	namespace.SetAnnotations(map[string]string{annotationTemporary: "true"})
	return namespace
}

// Temporary reports whether an object is a NamespaceForNow.
func Temporary(object *unstructured.Unstructured) bool {
	return object.GetAnnotations()[annotationTemporary] == "true"
}

// NamespaceAtRest is the namespace when only the journal is left in it: applying it removes the label that allows
// privileged pods.
func NamespaceAtRest() *unstructured.Unstructured {
	return convert(&corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace,
			Labels: map[string]string{v1alpha1.LabelManaged: "true"}},
	})
}

// AdmitsPrivileged reports whether the label of a namespace allows privileged pods.
func AdmitsPrivileged(namespace *unstructured.Unstructured) bool {
	return namespace.GetLabels()[enforce] == "privileged"
}

// meta is the metadata of an object in Theseus' namespace; labels come in pairs of key and value.
func meta(name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name:      name,
		Namespace: v1alpha1.Namespace,
		Labels:    map[string]string{v1alpha1.LabelManaged: "true"},
	}
	for i := 0; i+1 < len(labels); i += 2 {
		m.Labels[labels[i]] = labels[i+1]
	}
	return m
}

// convert converts a typed object to unstructured, without the fields that only the API server writes. It
// panics on a type without a JSON form; the tests convert all objects of this package.
func convert(object any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(fmt.Sprintf("convert %T: %v", object, err))
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: content}
}
