package calico

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

// manifest is the parsed manifest of the user. Everything in it is a copy.
type manifest struct {
	definitions []unstructured.Unstructured
	objects     []unstructured.Unstructured
	agent       *unstructured.Unstructured // in objects
	config      *unstructured.Unstructured // in objects; nil if the agent needs none
}

// understand parses a manifest, or refuses it with a reason.
func understand(documents []unstructured.Unstructured) (*manifest, error) {
	m := &manifest{}
	for i := range documents {
		object := documents[i].DeepCopy()
		if object.GetKind() == "CustomResourceDefinition" {
			m.definitions = append(m.definitions, *object)
			continue
		}
		if err := foreign(object); err != nil {
			return nil, err
		}
		m.objects = append(m.objects, *object)
	}
	cni.SortForApply(m.objects)
	for i := range m.objects {
		object := &m.objects[i]
		switch {
		case object.GetKind() == "DaemonSet" && object.GetName() == agentName:
			m.agent = object
		case object.GetKind() == "ConfigMap" && object.GetName() == configName:
			m.config = object
		}
	}
	if m.agent == nil {
		return nil, refuse("the manifest holds no DaemonSet "+agentName,
			"give Calico's own manifest, such as manifests/calico-vxlan.yaml of its release")
	}
	return m, m.agentUnderstood()
}

// foreign refuses documents that only an operator uses.
func foreign(object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	if gvk.Group == "operator.tigera.io" || gvk.Kind == "Deployment" && object.GetName() == "tigera-operator" {
		return refuse(
			fmt.Sprintf("the manifest installs Calico through its operator (%s %s), which would revert the staged "+
				"configuration",
				gvk.Kind, object.GetName()),
			"give the manifest without the operator, such as manifests/calico-vxlan.yaml of the release")
	}
	return nil
}

// agentUnderstood refuses forms of calico-node for which the joint phase is not supported.
func (m *manifest) agentUnderstood() error {
	agent := cni.FindContainer(m.agent, "containers", agentName)
	if agent == nil {
		return refuse("DaemonSet "+agentName+" has no container "+agentName,
			"give Calico's own manifest, with as few changes as possible")
	}
	if value := m.env(agent, "DATASTORE_TYPE"); value != "kubernetes" || m.env(agent, "ETCD_ENDPOINTS") != "" {
		return refuse("the manifest keeps Calico's data in etcd, not in the Kubernetes API",
			"give the manifest for the Kubernetes datastore, such as manifests/calico-vxlan.yaml of the release")
	}
	if m.env(agent, "FELIX_BPFENABLED") == "true" || m.felixBPF() {
		return refuse("the manifest turns on Calico's BPF data plane, which replaces kube-proxy on every node at once",
			"migrate with the standard data plane, and switch the data plane afterwards")
	}
	if m.env(agent, "CALICO_NETWORKING_BACKEND") == "none" {
		return refuse("the manifest only enforces policy: it has no pod network",
			"give a manifest with networking, such as manifests/calico-vxlan.yaml of the release")
	}
	if m.installer() == nil {
		return refuse("no init container of DaemonSet "+agentName+" installs the CNI configuration",
			"give Calico's own manifest, whose init container is install-cni")
	}
	return nil
}

func (m *manifest) felixBPF() bool {
	for _, object := range m.objects {
		if object.GetKind() == "FelixConfiguration" {
			if on, _, _ := unstructured.NestedBool(object.Object, "spec", "bpfEnabled"); on {
				return true
			}
		}
	}
	return false
}

// installer is the init container that writes the CNI configuration.
func (m *manifest) installer() map[string]any {
	if named := cni.FindContainer(m.agent, "initContainers", "install-cni"); named != nil {
		return named
	}
	for _, container := range cni.ContainersOf(m.agent, "initContainers") {
		if hasEnv(container, confNameVar) {
			return container
		}
	}
	return nil
}

func refuse(message, hint string) error { return &cni.Refusal{Message: message, Hint: hint} }
