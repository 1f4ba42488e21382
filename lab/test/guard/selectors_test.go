package guard

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// greedy are objects of a user in one namespace: a bare ReplicaSet that adopts each pod without an owner that has a key
// which is common on pods, and a Service, a budget and an autoscaler that select the names of Theseus' pods.
const greedy = `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: greedy-%[2]s, namespace: %[1]s}
spec:
  replicas: 1
  selector: {matchExpressions: [{key: %[3]s, operator: Exists}]}
  template:
    metadata: {labels: {%[3]s: theseus-probe}}
    spec:
      terminationGracePeriodSeconds: 0
      tolerations: [{operator: Exists}]
      containers:
        - {name: serve, image: "theseus.dev/workload:lab", imagePullPolicy: IfNotPresent,
           args: [serve, "--udp=:18082", "--health=:18083", "--grace=0s"], resources: {requests: {cpu: 20m}}}
---
apiVersion: v1
kind: Service
metadata: {name: greedy-%[2]s, namespace: %[1]s}
spec: {selector: {%[3]s: theseus-probe}, ports: [{port: 18082, protocol: UDP}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: greedy-%[2]s, namespace: %[1]s}
spec: {minAvailable: 1, selector: %[4]s}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: greedy-%[2]s, namespace: %[1]s}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: greedy-%[2]s}
  maxReplicas: 9
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
---
`

// greedyKinds are the kinds that are looked at.
const greedyKinds = "endpointslices,pods,replicasets,poddisruptionbudgets,horizontalpodautoscalers"

// greedyObjects are those in the namespace of the probes and in a user's own, where a budget has an empty selector.
func greedyObjects() string {
	names := func(key string) string {
		return "{matchExpressions: [{key: " + key + ", operator: In, values: [theseus-probe, theseus-new-pod]}]}"
	}
	return fmt.Sprintf(greedy, "theseus-system", "name", "app.kubernetes.io/name", names("app.kubernetes.io/name")) +
		fmt.Sprintf(greedy, "theseus-system", "app", "app", "{matchExpressions: [{key: app, operator: Exists}]}") +
		fmt.Sprintf(greedy, "default", "all", "app.kubernetes.io/name", "{}")
}

// seenGreedy is what the objects of a user say at one time.
type seenGreedy struct {
	counts         map[string]string // by object
	probes, newest int               // probe pods and new pods that exist
	adopted        []string
}

// lookAtGreedy reads all of it.
func lookAtGreedy(t *testing.T, rig *scenario.Rig) (seenGreedy, error) {
	seen := seenGreedy{counts: map[string]string{}}
	for _, namespace := range []string{"theseus-system", "default"} {
		text, err := rig.Kubectl(t.Context(), nil, "-n", namespace, "get", greedyKinds, "-o", "json")
		if err != nil {
			return seen, err
		}
		var list struct {
			Items []struct {
				Kind     string
				Metadata struct {
					Name            string
					Labels          map[string]string
					OwnerReferences []struct{ Kind, Name string }
				}
				Endpoints []struct{ TargetRef struct{ Name string } }
				Status    struct{ Replicas, ExpectedPods, CurrentHealthy, CurrentReplicas int }
			}
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return seen, err
		}
		for _, one := range list.Items {
			name := one.Metadata.Name
			switch greedy := strings.HasPrefix(name, "greedy-"); {
			case one.Kind == "Pod" && strings.HasPrefix(name, "theseus-"):
				if strings.HasPrefix(name, "theseus-probe-old-") {
					seen.probes++
				}
				if strings.HasPrefix(name, "theseus-new-pod-") {
					seen.newest++
				}
				for _, owner := range one.Metadata.OwnerReferences {
					if owner.Kind == "ReplicaSet" {
						seen.adopted = append(seen.adopted, name+" by "+owner.Name)
					}
				}
			case !greedy || one.Kind == "Pod":
			case one.Kind == "HorizontalPodAutoscaler" && one.Status.CurrentReplicas <= 1: // 0 for its first 15 s
			case one.Kind == "EndpointSlice":
				ends := one.Kind + " of " + namespace + "/" + one.Metadata.Labels["kubernetes.io/service-name"]
				for _, end := range one.Endpoints {
					seen.counts[ends] += end.TargetRef.Name + " "
				}
			default:
				seen.counts[one.Kind+" "+namespace+"/"+name] = fmt.Sprintf("%+v", one.Status)
			}
		}
	}
	return seen, nil
}

// ignoresSelectors runs a guard next to a user's objects with selectors that would match if the probes had labels that
// others have: no Service leads to a pod of Theseus, no ReplicaSet adopts one, and no budget or autoscaler counts one.
func ignoresSelectors(t *testing.T, rig *scenario.Rig, guard func()) {
	t.Helper()
	objects := greedyObjects()
	if _, err := rig.Kubectl(t.Context(), strings.NewReader(objects), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	const each = 3 // of a Service, a ReplicaSet and a budget
	var before seenGreedy
	rigtest.Until(t, "the user's objects have one pod each", func() bool {
		seen, err := lookAtGreedy(t, rig)
		before = seen
		ones := 0
		for what, says := range seen.counts {
			if strings.HasPrefix(what, "EndpointSlice") && strings.Count(says, "greedy-") == 1 ||
				strings.Contains(says, "ExpectedPods:1 CurrentHealthy:1") || strings.Contains(says, "{Replicas:1 ") {
				ones++
			}
		}
		return err == nil && ones == 3*each
	})
	end, looked := make(chan struct{}), sync.WaitGroup{}
	probes, newest, said := 0, 0, map[string]bool{}
	look := func() {
		seen, err := lookAtGreedy(t, rig)
		if err != nil {
			return // the next look tries again; some must see the pods
		}
		probes, newest = max(probes, seen.probes), max(newest, seen.newest)
		if !maps.Equal(seen.counts, before.counts) {
			said[fmt.Sprintf("the user's objects: %v, before the guard %v", seen.counts, before.counts)] = true
		}
		for _, one := range seen.adopted {
			said["adopted: "+one] = true
		}
	}
	looked.Go(func() {
		for {
			look()
			select {
			case <-end:
				return
			case <-time.After(time.Second):
			}
		}
	})
	guard()
	close(end)
	looked.Wait()
	look()
	for one := range said {
		t.Error(one)
	}
	if probes < len(rig.NodeNames()) || newest == 0 {
		t.Errorf("the looks saw %d probe pods and %d new pods at most", probes, newest)
	}
	if _, err := rig.Kubectl(t.Context(), strings.NewReader(objects), "delete", "--wait=false", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}
