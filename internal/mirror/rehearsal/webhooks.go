package rehearsal

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
)

const (
	// servingSecret has, in each namespace with stand-ins for webhooks, the certificate and the key with which they
	// serve.
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

// hookKinds are the kinds of webhook configurations, each with its resource.
func hookKinds() map[string]string {
	return map[string]string{"ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
		"MutatingWebhookConfiguration": "mutatingwebhookconfigurations"}
}

// webhooks copies the webhook configurations, with the webhooks whose Services are in the copy. It comes before the
// workloads: their stand-ins answer. What depends on the pods is entered later, by certify.
func (m *maker) webhooks() {
	for _, kind := range slices.Sorted(maps.Keys(hookKinds())) {
		if ok, why := m.original.Has(hookKinds()[kind]); !ok {
			m.Unasked = append(m.Unasked, fmt.Sprintf("those of %ss (%s)", kind, why))
		}
		for _, object := range m.original.OtherOf("admissionregistration.k8s.io", kind) {
			configured, _, err := unstructured.NestedSlice(object.Object, "webhooks")
			if err != nil {
				m.Unasked = append(m.Unasked, object.GetName())
				m.leave(kind, "", object.GetName(), "it cannot be read")
				continue
			}
			taken := m.has(kind, object.GetName())
			var kept []any
			for _, one := range configured {
				hook, _ := one.(map[string]any)
				why := "the scratch cluster has a configuration of this name"
				if !taken {
					why = m.answered(hook)
				}
				if why != "" {
					m.unasked(kind, object.GetName(), hook, why)
					continue
				}
				kept = append(kept, hook)
			}
			if len(kept) > 0 {
				clean := m.clean(&object)
				clean.Object["webhooks"] = kept
				m.Webhooks = append(m.Webhooks, clean)
			}
		}
	}
}

// unasked notes a webhook that is not in the copy.
func (m *maker) unasked(kind, configuration string, hook map[string]any, why string) {
	name, _, _ := unstructured.NestedString(hook, "name")
	m.leave(kind, "", configuration+": "+name, why)
	if policy, _, _ := unstructured.NestedString(hook, "failurePolicy"); policy != "Ignore" {
		m.Unasked = append(m.Unasked, name)
	}
}

// serviceOf is the Service of a webhook, with the port; the name is "" for a webhook outside of the cluster.
func serviceOf(hook map[string]any) (of service, port int64) {
	of.namespace, _, _ = unstructured.NestedString(hook, "clientConfig", "service", "namespace")
	of.name, _, _ = unstructured.NestedString(hook, "clientConfig", "service", "name")
	port, found, _ := unstructured.NestedInt64(hook, "clientConfig", "service", "port")
	if !found {
		port = 443 // as Kubernetes has it
	}
	return of, port
}

// answered notes the Service of a webhook; why says why the copy cannot have the webhook.
func (m *maker) answered(hook map[string]any) (why string) {
	of, port := serviceOf(hook)
	switch {
	case of.name == "":
		return "it is outside of the cluster"
	case !m.copied(of.namespace):
		return fmt.Sprintf("its Service %s/%s is not copied", of.namespace, of.name)
	}
	if namespace := m.scopeDiffers(hook); namespace != "" {
		return fmt.Sprintf(
			"its namespaceSelector reads labels of the namespace %s, which the scratch cluster's has not", namespace)
	}
	for i := range m.original.Services {
		one := &m.original.Services[i]
		if one.Namespace != of.namespace || one.Name != of.name {
			continue
		}
		for _, listed := range one.Spec.Ports {
			if int64(listed.Port) == port && len(one.Spec.Selector) > 0 {
				target := listed.TargetPort
				if target == (intstr.IntOrString{}) {
					target = intstr.FromInt32(listed.Port)
				}
				m.answers[of] = append(m.answers[of], target)
				return ""
			}
		}
	}
	return noPods(of, port)
}

func noPods(of service, port int64) string {
	return fmt.Sprintf("the copy has no pods behind port %d of its Service %s/%s", port, of.namespace, of.name)
}

// scopeDiffers is a namespace that is not copied, and that a webhook's namespaceSelector selects in one of the clusters
// only; "" if there is none.
func (m *maker) scopeDiffers(hook map[string]any) string {
	fields, _, _ := unstructured.NestedMap(hook, "namespaceSelector")
	var selector metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &selector); err != nil {
		return corev1.NamespaceDefault // it cannot be compared
	}
	selects, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return corev1.NamespaceDefault
	}
	theirs := map[string]labels.Set{}
	for i := range m.scratch.Namespaces {
		theirs[m.scratch.Namespaces[i].Name] = m.scratch.Namespaces[i].Labels
	}
	for i := range m.original.Namespaces {
		one := &m.original.Namespaces[i]
		if labels, both := theirs[one.Name]; both && (one.Name == corev1.NamespaceDefault || !m.copied(one.Name)) &&
			selects.Matches(labelsOf(one.Name, one.Labels)) != selects.Matches(labelsOf(one.Name, labels)) {
			return one.Name
		}
	}
	return ""
}

// labelsOf are the labels of a namespace, with the name that the API server puts there.
func labelsOf(namespace string, set labels.Set) labels.Set {
	return labels.Merge(set, labels.Set{corev1.LabelMetadataName: namespace})
}

// has reports whether the scratch cluster has a webhook configuration of this name.
func (m *maker) has(kind, name string) bool {
	return slices.ContainsFunc(m.scratch.OtherOf("admissionregistration.k8s.io", kind),
		func(u unstructured.Unstructured) bool { return u.GetName() == name })
}

// admitting are the ports on which pods with these labels answer admission reviews.
func (m *maker) admitting(namespace string, set map[string]string, spec *corev1.PodSpec) map[int32]bool {
	ports := map[int32]bool{}
	for i := range m.original.Services {
		one := &m.original.Services[i]
		targets := m.answers[service{one.Namespace, one.Name}]
		if len(targets) == 0 || !behind(one, namespace, set) {
			continue
		}
		for _, target := range targets {
			for _, container := range slices.Concat(spec.Containers, spec.InitContainers) {
				if number := portNumber(&container, target); number != 0 {
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

// certify leaves webhooks out that no pods of the copy answer for. It gives the stand-ins for the others a certificate
// for the names of their Services, and has the API server trust it.
func (m *maker) certify() error {
	answered := map[service]bool{}
	for i := range m.original.Services {
		one := &m.original.Services[i]
		of := service{one.Namespace, one.Name}
		if len(m.answers[of]) == 0 {
			continue
		}
		for _, pods := range m.pods {
			if (pods.copy > 0 || pods.daemon) && behind(one, pods.namespace, pods.labels) {
				answered[of], m.answering[pods.workload] = true, true
			}
		}
	}
	m.Webhooks = slices.DeleteFunc(m.Webhooks, func(object *unstructured.Unstructured) bool {
		hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		hooks = slices.DeleteFunc(hooks, func(one any) bool {
			hook, _ := one.(map[string]any)
			of, port := serviceOf(hook)
			if !answered[of] {
				m.unasked(object.GetKind(), object.GetName(), hook, noPods(of, port))
			}
			return !answered[of]
		})
		object.Object["webhooks"] = hooks
		return len(hooks) == 0
	})
	var names []string
	for one := range answered {
		names = append(names, one.name+"."+one.namespace+".svc")
	}
	if len(names) == 0 {
		return nil
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
			if err := unstructured.SetNestedField(hook, base64.StdEncoding.EncodeToString(made.Authority),
				"clientConfig", "caBundle"); err != nil {
				return err
			}
		}
		if err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err != nil {
			return err
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(m.serving)) {
		m.add(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata":   map[string]any{"name": servingSecret, "namespace": namespace},
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
