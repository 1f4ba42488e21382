package kube

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/apiserver"
)

// APIServers returns the addresses at which the API servers of the cluster serve, as HOST:PORT, sorted.
func APIServers(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	list, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, ofKubernetes())
	if err != nil {
		return nil, err
	}
	return apiserver.Find(list.Items), nil
}

// ofKubernetes selects the EndpointSlices of the Service kubernetes.
func ofKubernetes() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"}
}

// apiServers reads the addresses of the API servers into a snapshot.
func (r reader) apiServers(s *cluster.Snapshot) task {
	return func(ctx context.Context) cluster.Source {
		const resource = "endpointslices.discovery.k8s.io"
		ctx, cancel := r.client.Call(ctx)
		defer cancel()
		found, err := APIServers(ctx, r.client.Typed)
		if err != nil {
			return unread(resource, err)
		}
		s.APIServers = found
		return cluster.Source{Resource: resource, From: FromLive}
	}
}
