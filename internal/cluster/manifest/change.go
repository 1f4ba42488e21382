package manifest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// ChangeCRD returns the CRD of Changes. It is not among CRDs, which every run installs: only the controller reads
// Changes, so the chart has it. A Change has no namespace, because it is about the whole cluster.
func ChangeCRD() unstructured.Unstructured {
	crd := definition{
		kind: "Change", object: v1alpha1.Change{}, answered: true,
		columns: []column{
			{"Planned", "string", status(v1alpha1.ConditionPlanned)},
			{"Reason", "string", ".status.conditions[?(@.type=='" + v1alpha1.ConditionPlanned + "')].reason"},
			{"Approved", "string", status(v1alpha1.ConditionApproved)},
			{"Migration", "string", ".status.migration"},
			{"Phase", "string", ".status.phase"},
			{"Complete", "string", status(v1alpha1.ConditionComplete)},
			{"Plan", "string", ".status.planHash"},
		},
	}.build()
	fields := crd.Object["spec"].(map[string]any)
	fields["scope"] = "Cluster"
	schema :=
		fields["versions"].([]any)[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	schema["required"] = []any{"spec"}
	// kstatus takes a Change that no controller has seen for one that is done, unless this differs from its generation.
	schema["properties"].(map[string]any)["status"].(map[string]any)["default"] =
		map[string]any{"observedGeneration": int64(-1)}
	spec := schema["properties"].(map[string]any)["spec"].(map[string]any)
	spec["x-kubernetes-validations"] = changeRules()
	properties := spec["properties"].(map[string]any)
	delete(properties["manifestFrom"].(map[string]any), "nullable") // rules would have to allow null, too
	slo := properties["slo"].(map[string]any)
	delete(slo, "nullable")
	slo["maxItems"] = int64(v1alpha1.MaxSLO) // rules over lists must be bounded
	slo["items"].(map[string]any)["maxLength"] = int64(v1alpha1.MaxSLOLength)
	return crd
}

// changeRules are what the API server demands of the spec of a Change. Everything else depends on the cluster, and is a
// condition of the Change.
func changeRules() []any {
	const fromHere = ": make the plan with `theseus plan`, and run it with `theseus apply`"
	absent := func(field, message string) map[string]any {
		return map[string]any{"rule": "!has(self." + field + ")", "message": message}
	}
	atLeast := func(field, least string) map[string]any {
		return map[string]any{"rule": "!has(self." + field + ") || self." + field + " >= " + least,
			"message": field + " is at least " + least}
	}
	all := []any{
		map[string]any{"rule": "has(self.to) || has(self.dataplane) || has(self.flag) || has(self.reflectors) || " +
			"has(self.pool) || has(self.encapsulation)",
			"message": "name the change: to, dataplane, flag, reflectors, pool or encapsulation"},
		map[string]any{"rule": "!has(self.strategy) || self.strategy in ['', 'adopt', 'recreate', 'upgrade']",
			"message": "strategy is adopt, recreate or upgrade, or absent; the controller does not run plans of the " +
				"strategies surge and mirror" + fromHere},
		absent("manifest", "manifest names a file, which the controller does not have: use "+
			"manifestFrom.configMap or manifestFrom.inline"),
		map[string]any{"rule": "!has(self.manifestFrom) || (has(self.manifestFrom.configMap) && " +
			"self.manifestFrom.configMap != '') != (has(self.manifestFrom.inline) && self.manifestFrom.inline != '')",
			"message": "manifestFrom has either configMap or inline"},
		map[string]any{"rule": "!has(self.manifestFrom) || !has(self.manifestFrom.key) || " +
			"has(self.manifestFrom.configMap)",
			"message": "manifestFrom.key is a key of manifestFrom.configMap, which is missing"},
	}
	for _, field := range []string{"addHook", "removeHook", "hookSeconds", "surge"} {
		all = append(all, absent(field, field+" is for commands, which the controller does not run"+fromHere))
	}
	all = append(all, map[string]any{"rule": "!has(self.slo) || self.slo.all(one, !one.startsWith('command:'))",
		"message": "slo has a signal that is a command, which the controller does not run" + fromHere})
	for _, field := range []string{"kubernetesTo", "removeLabels", "addLabels", "labelNodes",
		"clusterIDs", "replaceNodes"} {
		all = append(all, absent(field, field+" is for `theseus check` only: a plan only changes the network"))
	}
	for _, field := range []string{"maxGapMillis", "maxLost", "bakeSeconds", "probeIntervalMillis", "outsideRate"} {
		all = append(all, atLeast(field, "0"))
	}
	return all
}
