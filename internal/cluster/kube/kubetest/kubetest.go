// Package kubetest makes clients for tests with a real API server (clustertest.ControlPlane). Servers belong into
// clustertest.
package kubetest

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// Users returns a function that makes a client of the user with a token. The token of clustertest's administrator is
// "token".
func Users(t testing.TB, config *rest.Config) func(token string) *kube.Client {
	return func(token string) *kube.Client {
		t.Helper()
		config := rest.CopyConfig(config)
		config.BearerToken = token
		client, err := kube.New(config, "test")
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
}
