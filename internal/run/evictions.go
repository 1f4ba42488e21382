package run

import (
	"encoding/json"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Evictions reads from the journal which pods were evicted. An action that failed has its answer, too, and a later
// attempt names a pod again that has not terminated meanwhile.
type Evictions struct{ failed map[attempted]bool }

type attempted struct {
	action, pod string
	undo        bool
}

// Evicted is a pod that an action evicted. Again is true if an earlier attempt of the action, which failed, has named
// it: it does not count twice.
type Evicted struct {
	kube.EvictedPod
	Again bool
}

// Of are the pods of a record, which must be the outcome of an eviction. It takes the records in their order.
func (e *Evictions) Of(r engine.Record) (all []Evicted) {
	var answer kube.Evicted
	if json.Unmarshal(r.Data, &answer) != nil {
		return nil
	}
	for _, pod := range answer.Pods {
		key := attempted{r.Action, pod.Namespace + "/" + pod.Name, r.Undo}
		all = append(all, Evicted{pod, e.failed[key]})
		if r.Result == engine.ResultFailed {
			if e.failed == nil {
				e.failed = map[attempted]bool{}
			}
			e.failed[key] = true
		}
	}
	return all
}

// evictions sums up the journal by workload: pods moved, and the time in ms until it had all its pods again.
func evictions(records []engine.Record) (moved map[string]int, whole map[string]int64) {
	moved, whole = map[string]int{}, map[string]int64{}
	var told Evictions
	for _, record := range records {
		if record.Event != engine.Acted {
			continue
		}
		for _, pod := range told.Of(record) {
			if whole[pod.Workload] += pod.WholeMillis; !pod.Again {
				moved[pod.Workload]++
			}
		}
	}
	return moved, whole
}
