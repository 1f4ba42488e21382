package policy

import (
	"maps"
	"strings"
)

// The labels that Calico adds to a pod's own (libcalico-go/lib/backend/k8s/conversion).
const (
	calicoPrefix         = "projectcalico.org/"
	calicoNamespaceLabel = calicoPrefix + "namespace"
	calicoOrchestrator   = calicoPrefix + "orchestrator"
	calicoAccount        = calicoPrefix + "serviceaccount"
	calicoName           = calicoPrefix + "name"
	calicoOfNamespace    = "pcns."
	calicoOfAccount      = "pcsa."
)

// The labels that Cilium adds to a pod's own (pkg/k8s/apis/cilium.io/const.go).
const (
	ciliumNamespace   = "io.kubernetes.pod.namespace"
	ciliumOfNamespace = "io.cilium.k8s.namespace.labels."
	ciliumAccount     = "io.cilium.k8s.policy.serviceaccount"
	ciliumCluster     = "io.cilium.k8s.policy.cluster"
)

// derived reports whether a label is not the pod's own.
func derived(label string) bool {
	for _, prefix := range []string{calicoPrefix, calicoOfNamespace, calicoOfAccount,
		ciliumNamespace, "io.cilium.k8s."} {
		if strings.HasPrefix(label, prefix) {
			return true
		}
	}
	return false
}

// ofAccount reports whether a label comes from a pod's service account.
func ofAccount(label string) bool {
	return label == calicoAccount || label == ciliumAccount || strings.HasPrefix(label, calicoOfAccount)
}

// labelOfAccount reports whether a label is one of a pod's service account, other than its name.
func labelOfAccount(label string) bool {
	return strings.HasPrefix(label, calicoOfAccount) && label != calicoOfAccount+calicoName
}

// seen returns a class's labels including those that Calico and Cilium add.
func (m *Model) seen(c *class) map[string]string {
	if c.derived != nil {
		return c.derived
	}
	c.derived = maps.Clone(c.labels)
	if c.derived == nil {
		c.derived = map[string]string{}
	}
	c.derived[calicoNamespaceLabel] = c.namespace.name
	c.derived[calicoOrchestrator] = "k8s"
	c.derived[ciliumNamespace] = c.namespace.name
	c.derived[ciliumCluster] = "default"
	if c.account != "" {
		c.derived[calicoAccount], c.derived[ciliumAccount] = c.account, c.account
	}
	for label, value := range calicoNamespace(c.namespace) {
		c.derived[calicoOfNamespace+label] = value
	}
	for label, value := range m.accountLabels(c) {
		c.derived[calicoOfAccount+label] = value
	}
	for label, value := range c.namespace.labels {
		c.derived[ciliumOfNamespace+label] = value
	}
	return c.derived
}

// calicoNamespace returns the labels that a namespace selector uses.
func calicoNamespace(n *namespace) map[string]string {
	seen := map[string]string{calicoName: n.name, calicoNamespaceLabel: n.name}
	maps.Copy(seen, n.labels)
	return seen
}

// accountLabels returns the labels that a service account selector uses.
func (m *Model) accountLabels(c *class) map[string]string {
	seen := map[string]string{calicoName: c.account}
	maps.Copy(seen, m.accountOf[c.namespace.name+"/"+c.account])
	return seen
}
