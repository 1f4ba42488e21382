package pki

import (
	"encoding/base64"
	"fmt"
)

// Kubeconfig renders a kubeconfig with one context that reaches server (an https URL), trusts ca
// (PEM) and authenticates as client.
func Kubeconfig(name, server string, ca []byte, client Pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[1]s}
current-context: %[1]s
`, name, server, b64(ca), b64(client.Cert), b64(client.Key))
}
