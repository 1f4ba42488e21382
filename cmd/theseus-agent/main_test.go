package main

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestConnect: an agent reaches an API server at its own address, though nothing answers at that of its credentials, as
// on a node whose rules of Services are being replaced.
func TestConnect(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": []}`))
	}))
	defer server.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1", TLSServerName: "example.com",
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: server.Certificate().Raw})}
	config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c"}, "c"
	file := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(server.URL, "https://")
	for servers, fails := range map[string]bool{"": true, address: false, "127.0.0.1:1," + address: false} {
		client, err := connect(file, servers)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).List(t.Context(),
			metav1.ListOptions{})
		if (err != nil) != fails {
			t.Errorf("--api-servers=%s: %v", servers, err)
		}
	}
	if _, err := connect(file, "192.0.2.1"); err == nil || !errors.As(err, &usage{}) {
		t.Errorf("an address without a port: %v", err)
	}
}
