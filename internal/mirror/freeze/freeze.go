// Package freeze says how a deploy freeze looks as objects: an admission policy that stops users and pipelines in
// chosen namespaces and lets controllers work, and GitOps objects that stand still and remember what they did before.
package freeze

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/owner"
)

const (
	// PolicyName is the name of the policy and of its binding: a cluster is frozen once.
	PolicyName = "freeze.theseus.dev"
	// BeforeAnnotation on a suspended GitOps object holds what it was before, as a Former.
	BeforeAnnotation = "theseus.dev/before-freeze"

	byAnnotation         = "theseus.dev/frozen-by"
	sinceAnnotation      = "theseus.dev/frozen-since"
	reasonAnnotation     = "theseus.dev/frozen-because"
	namespacesAnnotation = "theseus.dev/frozen-namespaces"
	allowedAnnotation    = "theseus.dev/frozen-allowed"
)

// Freeze is who froze what, and why.
type Freeze struct {
	Namespaces []string  `json:"namespaces"`
	By         string    `json:"by"`
	Since      time.Time `json:"since"`
	Reason     string    `json:"reason"`
	Allowed    []string  `json:"allowed,omitempty"` // users, and groups as group:NAME, who may go on
}

// controllers are the users whose work goes on: Kubernetes' own, which the cluster runs. In kube-system every
// controller of kube-controller-manager has a service account.
const controllers = `request.userInfo.username.startsWith("system:serviceaccount:kube-system:") || ` +
	`request.userInfo.username.startsWith("system:node:") || ` +
	`request.userInfo.username in ["system:kube-controller-manager", "system:kube-scheduler", "system:apiserver", "system:cloud-controller-manager"]`

// ownRecord is a workload that notes something in its own namespace, such as who leads (Patroni and others): a pod of
// the namespace that updates a ConfigMap. It goes on, since it would stop working.
const ownRecord = `request.resource.group == "" && request.resource.resource == "configmaps" && request.operation == "UPDATE" && ` +
	`request.userInfo.username.startsWith("system:serviceaccount:" + request.namespace + ":") && ` +
	`has(request.userInfo.extra) && "authentication.kubernetes.io/pod-name" in request.userInfo.extra`

// made says of a variable that another object makes it, and goes on doing so: such objects are not what is deployed.
const made = `has(%[1]s.metadata.ownerReferences) && %[1]s.metadata.ownerReferences.exists(o, has(o.controller) && o.controller)`

// Policy is the policy of the freeze. Writes of users to anything that makes up a deployment are denied, through
// every subresource but status; what controllers write, what belongs to an object that is frozen itself, and what is
// no deployment (events, leases, evictions, the life of pods) is not.
func (f Freeze) Policy() *admissionv1.ValidatingAdmissionPolicy {
	all := func(resources ...string) admissionv1.NamedRuleWithOperations {
		return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.OperationAll},
			Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: resources},
		}}
	}
	// The binding's selector of namespaces lets every cluster-wide object through to the policy, so that the rules have
	// to leave them out, all but the namespaces themselves.
	writes, spaces := all("*/*"), all("namespaces", "namespaces/finalize")
	writes.Operations = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
	writes.Scope = ptr.To(admissionv1.NamespacedScope)
	spaces.Operations, spaces.APIGroups = writes.Operations, []string{""}
	life := all("pods")
	life.Operations = []admissionv1.OperationType{admissionv1.Update, admissionv1.Delete}
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: f.meta(),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{},
				ObjectSelector:    &metav1.LabelSelector{},
				MatchPolicy:       ptr.To(admissionv1.Equivalent),
				ResourceRules:     []admissionv1.NamedRuleWithOperations{writes, spaces},
				ExcludeResourceRules: []admissionv1.NamedRuleWithOperations{
					all("*/status", "*/binding", "*/token", "*/eviction", "*/exec", "*/attach",
						"*/portforward", "*/proxy", "*/log", "*/ephemeralcontainers", "*/resize",
						"bindings", "events", "leases", "endpoints", "endpointslices", "localsubjectaccessreviews"),
					life,
				},
			},
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "not-a-controller", Expression: "!(" + controllers + ")"},
				{Name: "not-a-workloads-own-record", Expression: "!(" + ownRecord + ")"},
				{Name: "not-allowed-by-name", Expression: "!(" + f.exempt() + ")"},
				{Name: "not-made-by-another-object",
					Expression: fmt.Sprintf("!((object == null || (%s)) && (oldObject == null || (%s)))",
						fmt.Sprintf(made, "object"), fmt.Sprintf(made, "oldObject"))},
			},
			Validations: []admissionv1.Validation{{
				Expression: "false",
				Message:    f.message(),
				Reason:     ptr.To(metav1.StatusReasonForbidden),
			}},
		},
	}
}

// Binding binds the policy to the namespaces by their names, which no label can lift: the API server itself holds
// kubernetes.io/metadata.name.
func (f Freeze) Binding() *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1",
			Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: f.meta(),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        PolicyName,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny, admissionv1.Audit},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName,
					Operator: metav1.LabelSelectorOpIn, Values: f.Namespaces}},
			}},
		},
	}
}

func (f Freeze) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: PolicyName, Annotations: map[string]string{
		byAnnotation: f.By, sinceAnnotation: f.Since.UTC().Format(time.RFC3339), reasonAnnotation: f.Reason,
		namespacesAnnotation: strings.Join(f.Namespaces, ","), allowedAnnotation: strings.Join(f.Allowed, ","),
	}}
}

// message is what a denied user reads. The API server sets its own words before it.
func (f Freeze) message() string {
	return fmt.Sprintf("%s froze this namespace at %s: %s. Deploys are denied until the freeze ends "+
		"(theseus mirror thaw)", f.By, f.Since.UTC().Format(time.RFC3339), f.Reason)
}

// exempt is the condition for those who may go on.
func (f Freeze) exempt() string {
	var users, groups []string
	for _, name := range f.Allowed {
		if group, ok := strings.CutPrefix(name, "group:"); ok {
			groups = append(groups, strconv.Quote(group))
		} else {
			users = append(users, strconv.Quote(name))
		}
	}
	return fmt.Sprintf("request.userInfo.username in [%s] || request.userInfo.groups.exists(g, g in [%s])",
		strings.Join(users, ", "), strings.Join(groups, ", "))
}

// Read is the freeze that a policy stands for.
func Read(policy *admissionv1.ValidatingAdmissionPolicy) (Freeze, error) {
	notes := policy.Annotations
	since, err := time.Parse(time.RFC3339, notes[sinceAnnotation])
	if err != nil {
		return Freeze{}, fmt.Errorf("the policy %s does not record when it began: %w", policy.Name, err)
	}
	f := Freeze{By: notes[byAnnotation], Reason: notes[reasonAnnotation], Since: since}
	f.Namespaces = list(notes[namespacesAnnotation])
	f.Allowed = list(notes[allowedAnnotation])
	return f, nil
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// Reserved says of a namespace that it is each cluster's own: Kubernetes', or that of Theseus' journal.
func Reserved(namespace string) bool {
	return strings.HasPrefix(namespace, "kube-") || namespace == v1alpha1.Namespace
}

// Check says what is wrong with a freeze.
func (f Freeze) Check() error {
	switch at := slices.IndexFunc(f.Namespaces, Reserved); {
	case len(f.Namespaces) == 0:
		return fmt.Errorf("no namespace is chosen")
	case at >= 0:
		return fmt.Errorf("%s cannot be frozen: the cluster's own components, or Theseus, write there",
			f.Namespaces[at])
	case strings.TrimSpace(f.Reason) == "" || strings.ContainsAny(f.Reason, "\r\n"):
		return fmt.Errorf("a freeze needs a reason of one line, which every denied user sees")
	case slices.ContainsFunc(f.Allowed,
		func(name string) bool { return name == "" || name == "group:" || strings.ContainsAny(name, ",\n") }):
		return fmt.Errorf("--allow has a user without a name")
	}
	return nil
}

// Former is a field as it was before the freeze.
type Former struct {
	Path  []string        `json:"path"`
	Value json.RawMessage `json:"value,omitempty"` // missing: the field was missing
}

// Suspend returns the merge patch that makes an object stand still and remember. It returns nil where it remembers
// already.
func Suspend(object *unstructured.Unstructured) ([]byte, error) {
	path, value, known := owner.Suspends(object)
	if !known {
		return nil, fmt.Errorf("Theseus does not know how to suspend a %s", object.GroupVersionKind().GroupKind())
	}
	if object.GetAnnotations()[BeforeAnnotation] != "" {
		return nil, nil
	}
	former := Former{Path: path}
	if before, found, err := unstructured.NestedFieldNoCopy(object.Object, path...); err != nil {
		return nil, err
	} else if found {
		if former.Value, err = json.Marshal(before); err != nil {
			return nil, err
		}
	}
	note, err := json.Marshal(former)
	if err != nil {
		return nil, err
	}
	return patch(object, string(note), path, value)
}

// Resume returns the merge patch that takes an object back to what it was, or nil where it remembers nothing.
func Resume(object *unstructured.Unstructured) ([]byte, error) {
	note := object.GetAnnotations()[BeforeAnnotation]
	if note == "" {
		return nil, nil
	}
	var former Former
	if err := json.Unmarshal([]byte(note), &former); err != nil || len(former.Path) == 0 {
		return nil, fmt.Errorf("the annotation %s says %q, which Theseus cannot read", BeforeAnnotation, note)
	}
	// another client wrote it: it could name any field
	if path, _, _ := owner.Suspends(object); !slices.Equal(path, former.Path) {
		return nil, fmt.Errorf("the annotation %s names the field %q, which Theseus does not suspend",
			BeforeAnnotation, strings.Join(former.Path, "."))
	}
	var value any
	if former.Value != nil {
		if err := json.Unmarshal(former.Value, &value); err != nil {
			return nil, fmt.Errorf("the annotation %s: %w", BeforeAnnotation, err)
		}
	}
	return patch(object, nil, former.Path, value)
}

// patch sets the annotation and the field. It holds for the version of the object that was read, and no other.
func patch(object *unstructured.Unstructured, note any, path []string, value any) ([]byte, error) {
	merge := map[string]any{"metadata": map[string]any{
		"resourceVersion": object.GetResourceVersion(),
		"annotations":     map[string]any{BeforeAnnotation: note},
	}}
	fields := merge
	for _, name := range path[:len(path)-1] {
		below := map[string]any{}
		fields[name] = below
		fields = below
	}
	fields[path[len(path)-1]] = value
	return json.Marshal(merge)
}

// Deploys says whether a GitOps object writes into one of the namespaces of its own cluster.
func Deploys(object *unstructured.Unstructured, namespaces []string) bool {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(object.Object, path...)
		return value
	}
	in := func(name string) bool { return slices.Contains(namespaces, name) }
	if !owner.Here(object) {
		return false
	}
	switch object.GetKind() {
	case "Application":
		return in(text("spec", "destination", "namespace")) || inventoryIn(object, in)
	case "HelmRelease":
		if target := text("spec", "targetNamespace"); target != "" {
			return in(target)
		}
		return in(object.GetNamespace())
	case "Kustomization":
		return in(text("spec", "targetNamespace")) || in(object.GetNamespace()) || inventoryIn(object, in)
	}
	return false
}

// inventoryIn looks at what a GitOps object says that it has.
func inventoryIn(object *unstructured.Unstructured, in func(string) bool) bool {
	return slices.ContainsFunc(owner.Inventory(object), func(key owner.Key) bool { return in(key.Namespace) })
}

// WithParents are those GitOps objects that deploy to the namespaces, and those that made them and would set them
// going again.
func WithParents(objects []*unstructured.Unstructured, namespaces []string) []*unstructured.Unstructured {
	chosen := map[*unstructured.Unstructured]bool{}
	for _, object := range objects {
		chosen[object] = Deploys(object, namespaces)
	}
	for more := true; more; {
		more = false
		for _, parent := range objects {
			if chosen[parent] || parent.GetKind() != "Kustomization" {
				continue
			}
			for _, key := range owner.Inventory(parent) {
				if slices.ContainsFunc(objects,
					func(child *unstructured.Unstructured) bool { return chosen[child] && owner.KeyOf(child) == key }) {
					chosen[parent], more = true, true
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(objects), func(object *unstructured.Unstructured) bool {
		return !chosen[object]
	})
}
