//go:build cluster

package provider

import (
	"os"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterVariable names a kubeconfig of an API server that has FeatureFlags and the namespace net.
const clusterVariable = "THESEUS_FLAGS_CLUSTER"

// TestObjectInCluster runs the same against a real API server. The lab's TestFlags (lab/test/flags) brings one up and
// builds this file.
func TestObjectInCluster(t *testing.T) {
	file := os.Getenv(clusterVariable)
	if file == "" {
		t.Fatal(clusterVariable + " names no kubeconfig")
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	acceptObject(t, client)
}
