package kube

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// AddNames reads the objects that define the DNS names of a cluster's services into a new snapshot's Other: Ingresses,
// and, if served, Gateways with their routes and external-dns' DNSEndpoints. Sources names what cannot be read.
func AddNames(ctx context.Context, client *Client, s *cluster.Snapshot) error {
	r := reader{client: client}
	var lock sync.Mutex
	keep := func(objects []unstructured.Unstructured) {
		lock.Lock()
		defer lock.Unlock()
		s.Other = append(s.Other, objects...)
	}
	tasks := []task{r.other("ingresses.networking.k8s.io",
		schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, keep)}
	served, err := client.Discovery.ServerGroups()
	for group, wanted := range map[string][]string{
		"gateway.networking.k8s.io": {"gateways", "httproutes", "grpcroutes", "tlsroutes"},
		"externaldns.k8s.io":        {"dnsendpoints"},
	} {
		var resources []schema.GroupVersionResource
		failed := err
		if failed == nil {
			resources, failed = r.resourcesOf(served, group)
		}
		if failed != nil {
			s.Sources = append(s.Sources, unread(group, failed))
		}
		for _, resource := range resources {
			if slices.Contains(wanted, resource.Resource) {
				tasks = append(tasks, r.other(resource.Resource+"."+group, resource, keep))
			}
		}
	}
	sources, err := runTasks(ctx, tasks)
	s.Sources = append(s.Sources, sources...)
	cluster.Trim(s)
	return err
}
