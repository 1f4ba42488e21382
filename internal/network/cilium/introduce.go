package cilium

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

var _ cni.Introducer = Driver{}

// Cilium's agents take a pod of another network for a stranger (world), whose packets no podSelector allows. With a
// CiliumEndpoint, whose CiliumIdentity has the pod's labels, they know it as if it were their own, and its node, to
// which they send through their tunnel.

// clusterName is the one that the chart gives a cluster without a name.
const clusterName = "default"

// Numbers implements cni.Introducer: those below are reserved (pkg/identity), those above belong to other clusters of a
// mesh.
func (Driver) Numbers() (first, last int) { return 256, 65535 }

// Known implements cni.Introducer.
func (Driver) Known() (identities, endpoints schema.GroupVersionResource) {
	v2 := schema.GroupVersion{Group: group, Version: "v2"}
	return v2.WithResource("ciliumidentities"), v2.WithResource("ciliumendpoints")
}

// Rights implements cni.Introducer.
func (d Driver) Rights() []rbacv1.PolicyRule {
	identities, endpoints := d.Known()
	return []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{identities.Resource},
			Verbs: []string{"get", "list", "watch", "create"}},
		{APIGroups: []string{group}, Resources: []string{endpoints.Resource},
			Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
	}
}

// Prefixes of the labels that Cilium itself adds to those of a pod (pkg/k8s/apis/cilium.io).
const (
	namespaceLabel  = "io.kubernetes.pod.namespace"
	namespaceLabels = "io.cilium.k8s.namespace.labels."
	policyCluster   = "io.cilium.k8s.policy.cluster"
	policyAccount   = "io.cilium.k8s.policy.serviceaccount"
	namedPorts      = "io.cilium.k8s.named-ports"
)

// filters are the default filters of labels (pkg/labelsfilter), which match at the beginning of a label.
var filters = []struct {
	expr *regexp.Regexp
	keep bool
}{
	{regexp.MustCompile(`io\.kubernetes\.pod\.namespace`), true},
	{regexp.MustCompile(`io\.cilium\.k8s\.namespace\.labels`), true}, {regexp.MustCompile(`app\.kubernetes\.io`), true},
	{regexp.MustCompile(`io\.cilium\.k8s\.policy\.cluster`), true},
	{regexp.MustCompile(`io\.cilium\.k8s\.policy\.serviceaccount`), true},
	{regexp.MustCompile(`io\.kubernetes`), false}, {regexp.MustCompile(`kubernetes\.io`), false},
	{regexp.MustCompile(`statefulset\.kubernetes\.io/pod-name`), false},
	{regexp.MustCompile(`apps\.kubernetes\.io/pod-index`), false},
	{regexp.MustCompile(`batch\.kubernetes\.io/job-completion-index`), false},
	{regexp.MustCompile(`batch\.kubernetes\.io/controller-uid`), false},
	{regexp.MustCompile(`.*beta\.kubernetes\.io`), false}, {regexp.MustCompile(`k8s\.io`), false},
	{regexp.MustCompile(`pod-template-generation`), false}, {regexp.MustCompile(`pod-template-hash`), false},
	{regexp.MustCompile(`controller-revision-hash`), false}, {regexp.MustCompile(`controller-uid`), false},
	{regexp.MustCompile(`annotation.*`), false},
	{regexp.MustCompile(`etcd_node`), false}, {regexp.MustCompile(`topology\.kubernetes\.io`), false},
}

// identifies reports whether a label is part of a pod's identity.
func identifies(key string) bool {
	included, ignored := 0, 0 // the longest match that keeps it, the shortest that does not
	for _, f := range filters {
		at := f.expr.FindStringIndex(key)
		switch {
		case at == nil || at[0] != 0:
		case f.keep:
			included = max(included, at[1])
		case ignored == 0 || at[1] < ignored:
			ignored = at[1]
		}
	}
	return ignored == 0 || included > ignored
}

// Identify implements cni.Introducer as Cilium's agent does (SanitizePodLabels in pkg/k8s/utils, then its filters).
func (Driver) Identify(pod *corev1.Pod, namespace map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range pod.Labels {
		if !strings.HasPrefix(key, "io.cilium.k8s.") { // a pod may not claim what Cilium says of it
			all[key] = value
		}
	}
	for key, value := range namespace {
		all[namespaceLabels+key] = value
	}
	all[namespaceLabel], all[policyCluster] = pod.Namespace, clusterName
	if account := pod.Spec.ServiceAccountName; account != "" {
		all[policyAccount] = account
	} else {
		delete(all, policyAccount)
	}
	known := map[string]string{}
	for key, value := range all {
		if identifies(key) {
			known["k8s:"+key] = value
		}
	}
	for i, value := range portLabels(pod) {
		key := namedPorts
		if i > 0 {
			key += "-" + strconv.Itoa(i)
		}
		known["gen:"+key] = value
	}
	return known
}

// portLabels are the values of the labels that Cilium makes of a pod's named ports since v1.20
// (NamedPortsIdentityLabels in pkg/k8s). A name with different numbers in one identity would be no port at all. Older
// releases take them for labels that no policy selects.
func portLabels(pod *corev1.Pod) []string {
	ports := map[string]string{}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name != "" {
				ports[port.Name] = fmt.Sprintf("%s.%s.%d", port.Name,
					cmp.Or(port.Protocol, corev1.ProtocolTCP), port.ContainerPort)
			}
		}
	}
	var values []string
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		last := len(values) - 1
		if last < 0 || len(values[last])+1+len(ports[name]) > content.LabelValueMaxLength {
			values = append(values, ports[name])
			continue
		}
		values[last] += "_" + ports[name]
	}
	return values
}

// Labels implements cni.Introducer.
func (Driver) Labels(identity *unstructured.Unstructured) map[string]string {
	labels, _, _ := unstructured.NestedStringMap(identity.Object, "security-labels")
	return labels
}

// Identity implements cni.Introducer.
func (Driver) Identity(number int, labels map[string]string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"security-labels": anyMap(labels)}}
	object.SetAPIVersion(group + "/v2")
	object.SetKind("CiliumIdentity")
	object.SetName(strconv.Itoa(number))
	object.SetLabels(map[string]string{namespaceLabel: labels["k8s:"+namespaceLabel]}) // Cilium's own have it
	return object
}

// Endpoint implements cni.Introducer. Its ID is one that no endpoint of an agent has.
func (Driver) Endpoint(pod *corev1.Pod, number int, labels map[string]string) *unstructured.Unstructured {
	var names []any
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		names = append(names, key+"="+labels[key])
	}
	status := map[string]any{
		"id": int64(0), "state": "ready",
		"identity": map[string]any{"id": int64(number), "labels": names},
		"networking": map[string]any{"addressing": []any{map[string]any{"ipv4": pod.Status.PodIP}},
			"node": pod.Status.HostIP},
	}
	if ports := named(pod); len(ports) > 0 {
		status["named-ports"] = ports
	}
	object := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	object.SetAPIVersion(group + "/v2")
	object.SetKind("CiliumEndpoint")
	object.SetNamespace(pod.Namespace)
	object.SetName(pod.Name)
	return object
}

// named are the ports of a pod to which policies may refer by name.
func named(pod *corev1.Pod) []any {
	var ports []any
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == "" {
				continue
			}
			ports = append(ports, map[string]any{"name": port.Name, "port": int64(port.ContainerPort),
				"protocol": string(cmp.Or(port.Protocol, corev1.ProtocolTCP))})
		}
	}
	slices.SortFunc(ports, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return ports
}

func anyMap(labels map[string]string) map[string]any {
	all := map[string]any{}
	for key, value := range labels {
		all[key] = value
	}
	return all
}
