package rehearsal

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
)

const (
	// servingSecret has, in each namespace with stand-ins for webhooks, the certificate and the key with which they serve.
	servingSecret = "theseus-rehearsal-webhooks"
	servingKey    = "serving.pem"
	// servingVariable is the environment variable from which stand-ins read them.
	servingVariable = "REHEARSAL_CERTIFICATE"
)

// Certificate is what stand-ins for webhooks serve with, as PEM.
type Certificate struct {
	// Authority is what the API server trusts; Serving is the certificate with its key.
	Authority, Serving []byte
}

// service names a Service whose pods answer admission reviews.
type service struct{ namespace, name string }

// webhooks copies the webhook configurations, with the webhooks whose Services are in the copy. It comes before the workloads: their
// stand-ins answer. The authority is entered later, by certify.
func (m *maker) webhooks() {
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		for _, object := range m.original.OtherOf("admissionregistration.k8s.io", kind) {
			configured, _, err := unstructured.NestedSlice(object.Object, "webhooks")
			if err != nil {
				m.leave(kind, "", object.GetName(), "it cannot be read")
				continue
			}
			var kept []any
			for _, one := range configured {
				hook, _ := one.(map[string]any)
				if why := m.answered(hook); why != "" {
					name, _, _ := unstructured.NestedString(hook, "name")
					m.leave(kind, "", object.GetName()+": "+name, why)
					continue
				}
				kept = append(kept, hook)
			}
			switch {
			case len(kept) == 0:
				continue
			case m.has(kind, object.GetName()):
				m.leave(kind, "", object.GetName(), "the scratch cluster has one of this name")
				continue
			}
			clean := m.clean(&object)
			clean.Object["webhooks"] = kept
			m.Webhooks = append(m.Webhooks, clean)
		}
	}
}

// answered notes the Service of a webhook; why says why the copy cannot have the webhook.
func (m *maker) answered(hook map[string]any) (why string) {
	namespace, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "namespace")
	name, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "name")
	port, found, _ := unstructured.NestedInt64(hook, "clientConfig", "service", "port")
	if !found {
		port = 443 // as Kubernetes has it
	}
	switch {
	case name == "":
		return "it is outside of the cluster"
	case !m.copied(namespace):
		return fmt.Sprintf("its Service %s/%s is not copied", namespace, name)
	}
	for i := range m.original.Services {
		one := &m.original.Services[i]
		if one.Namespace != namespace || one.Name != name {
			continue
		}
		for _, listed := range one.Spec.Ports {
			if int64(listed.Port) == port && len(one.Spec.Selector) > 0 {
				target := listed.TargetPort
				if target == (intstr.IntOrString{}) {
					target = intstr.FromInt32(listed.Port)
				}
				of := service{namespace, name}
				m.answers[of] = append(m.answers[of], target)
				return ""
			}
		}
	}
	return fmt.Sprintf("no pods are behind port %d of its Service %s/%s", port, namespace, name)
}

// has reports whether the scratch cluster has a webhook configuration of this name.
func (m *maker) has(kind, name string) bool {
	return slices.ContainsFunc(m.scratch.OtherOf("admissionregistration.k8s.io", kind), func(u unstructured.Unstructured) bool { return u.GetName() == name })
}

// admitting are the ports on which pods with these labels answer admission reviews.
func (m *maker) admitting(namespace string, set map[string]string, spec *corev1.PodSpec) map[int32]bool {
	ports := map[int32]bool{}
	for i := range m.original.Services {
		one := &m.original.Services[i]
		targets := m.answers[service{one.Namespace, one.Name}]
		if one.Namespace != namespace || len(targets) == 0 || !labels.SelectorFromSet(one.Spec.Selector).Matches(labels.Set(set)) {
			continue
		}
		for _, target := range targets {
			for j := range spec.Containers {
				if number := portNumber(&spec.Containers[j], target); number != 0 {
					ports[number] = true
				}
			}
		}
	}
	return ports
}

// portNumber is the number of a port of a container, 0 if the container has none of its name.
func portNumber(container *corev1.Container, port intstr.IntOrString) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, declared := range container.Ports {
		if declared.Name == port.StrVal {
			return declared.ContainerPort
		}
	}
	return 0
}

// certify gives the stand-ins for webhooks a certificate for the names of their Services, and has the API server trust it.
func (m *maker) certify() error {
	if len(m.Webhooks) == 0 {
		return nil
	}
	var names []string
	for one := range m.answers {
		names = append(names, one.name+"."+one.namespace+".svc")
	}
	slices.Sort(names)
	made, err := m.options.Certify(names)
	if err != nil {
		return fmt.Errorf("a certificate for stand-ins of webhooks: %w", err)
	}
	for _, object := range m.Webhooks {
		hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		for _, one := range hooks {
			hook, _ := one.(map[string]any)
			if err := unstructured.SetNestedField(hook, base64.StdEncoding.EncodeToString(made.Authority), "clientConfig", "caBundle"); err != nil {
				return err
			}
		}
		if err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err != nil {
			return err
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(m.serving)) {
		m.add(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": servingSecret, "namespace": namespace},
			"stringData": map[string]any{servingKey: string(made.Serving)}}})
	}
	return nil
}

// hooks says how many webhooks the copy has, for people.
func (c *Copy) hooks() string {
	n := 0
	for _, object := range c.Webhooks {
		hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		n += len(hooks)
	}
	return cluster.Count(n, "webhook")
}
