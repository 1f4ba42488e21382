package manifest

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// column is one column of `kubectl get`.
type column struct {
	name, kind, path string
}

// counts are the columns of `kubectl get -o wide` for a kind whose status has an ApprovalCount.
var counts = []column{{"Approvals", "integer", ".status.approval.counted"},
	{"Needed", "integer", ".status.approval.needed"}, {"Signed", "boolean", ".status.approval.signedOnly"}}

// definition holds the differences between the kinds.
type definition struct {
	kind    string
	object  any // the Go type from which the schema is generated
	columns []column
	// answered is true if the status is a subresource, so that a writer of the status cannot change the spec.
	answered bool
	// frozen is why the spec never changes; "" if it may.
	frozen string
}

func definitions() []definition {
	return []definition{
		{"Migration", v1alpha1.Migration{}, []column{
			{"Phase", "string", ".status.phase"}, {"Step", "string", ".status.step"},
			{"Done", "integer", ".status.done"}, {"Total", "integer", ".status.total"},
			{"Approved", "string", status(v1alpha1.ConditionApproved)},
			{"Degraded", "string", status(v1alpha1.ConditionDegraded)},
			{"Complete", "string", status(v1alpha1.ConditionComplete)}}, false, ""},
		{"Approval", v1alpha1.Approval{}, []column{
			{"Migration", "string", ".spec.migration"}, {"User", "string", ".spec.user"},
			{"Plan", "string", ".spec.planHash"}}, false, "the spec of an approval never changes"},
		{"PlanPage", v1alpha1.PlanPage{}, []column{
			{"Migration", "string", ".migration"}, {"Page", "integer", ".page"}}, false, ""},
		{"JournalPage", v1alpha1.JournalPage{}, []column{
			{"Migration", "string", ".migration"}, {"Page", "integer", ".page"}}, false, ""},
		{"NodeTask", v1alpha1.NodeTask{}, []column{
			{"Node", "string", ".spec.node"}, {"Verb", "string", ".spec.verb"},
			{"Phase", "string", ".status.phase"}, {"Message", "string", ".status.message"}}, true,
			"the spec of a task never changes"},
		{"ProbePlan", v1alpha1.ProbePlan{}, []column{{"Generation", "integer", ".spec.generation"}}, false, ""},
		{"ProbeReport", v1alpha1.ProbeReport{}, []column{
			{"Generation", "integer", ".status.generation"}, {"Seq", "integer", ".status.seq"},
			{"At", "date", ".status.at"}}, false, ""},
	}
}

// status is the path of a condition's status.
func status(condition string) string {
	return ".status.conditions[?(@.type=='" + condition + "')].status"
}

// CRDs returns the CRDs of Theseus' kinds. A NodeTask has two writers: the engine writes the spec, which never changes,
// and the node's agent writes the status, which is a subresource. The status of other kinds is part of the object, so
// that both are read and written in one request. That of a Migration stays so although a controller writes conditions
// to it: a run that an earlier version began writes its progress there.
func CRDs() []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, d := range definitions() {
		all = append(all, d.build())
	}
	return all
}

// Kept returns the names of the CRDs that stay after a migration: those of the kinds that hold the journal, and who
// approved the plan.
func Kept() []string {
	var names []string
	for _, kind := range []string{"Migration", "Approval", "PlanPage", "JournalPage"} {
		names = append(names, Plural(kind)+"."+v1alpha1.Group)
	}
	return names
}

// Plural is the resource of one of Theseus' kinds, such as "nodetasks" for "NodeTask".
func Plural(kind string) string { return strings.ToLower(kind) + "s" }

func (d definition) build() unstructured.Unstructured {
	var columns []any
	for _, c := range d.columns {
		columns = append(columns, map[string]any{"name": c.name, "type": c.kind, "jsonPath": c.path})
	}
	if d.kind == "Migration" || d.kind == "Change" {
		for _, c := range counts {
			columns = append(columns, map[string]any{"name": c.name, "type": c.kind, "jsonPath": c.path,
				"priority": int64(1)})
		}
	}
	columns = append(columns, map[string]any{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
	plural := Plural(d.kind)
	schema := schemaOf(d.object)
	version := map[string]any{
		"name": v1alpha1.Version, "served": true, "storage": true,
		"schema":                   map[string]any{"openAPIV3Schema": schema},
		"additionalPrinterColumns": columns,
	}
	if d.answered {
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	if d.kind == "Migration" || d.kind == "Change" {
		limitWindows(schema)
	}
	if d.kind == "Approval" {
		limitSignature(schema)
	}
	if d.kind == "ProbeReport" {
		limitPacked(schema)
	}
	if d.frozen != "" {
		freeze(schema, d.frozen)
	}
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":   plural + "." + v1alpha1.Group,
			"labels": map[string]any{v1alpha1.LabelManaged: "true"},
		},
		"spec": map[string]any{
			"group": v1alpha1.Group,
			"scope": "Namespaced",
			"names": map[string]any{
				"kind": d.kind, "listKind": d.kind + "List",
				"plural": plural, "singular": strings.ToLower(d.kind),
			},
			"versions": []any{version},
		},
	}}
}

// freeze makes the API server refuse every change of a kind's spec: a task with another node, verb or arguments must be
// a new object with a new UID, and so must an approval of another plan.
func freeze(schema map[string]any, message string) {
	spec := schema["properties"].(map[string]any)["spec"].(map[string]any)
	spec["x-kubernetes-validations"] = []any{map[string]any{"rule": "self == oldSelf", "message": message}}
}

// limitSignature bounds what a controller reads of an approval: some dozen signatures.
func limitSignature(schema map[string]any) {
	spec := schema["properties"].(map[string]any)["spec"].(map[string]any)["properties"].(map[string]any)
	spec["signature"].(map[string]any)["maxLength"] = int64(16 << 10)
}

// limitPacked bounds what readers unpack of a report, as they do (loss.MaxPacked).
func limitPacked(schema map[string]any) {
	status := schema["properties"].(map[string]any)["status"].(map[string]any)["properties"].(map[string]any)
	status["packed"].(map[string]any)["maxLength"] = int64(128 << 10)
}
