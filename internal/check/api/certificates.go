package api

import (
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/finding"
)

//go:embed certificates.md
var certificatesDoc string

// soon is how long before its end a certificate is named: a change, and the way back, are to fit in.
const soon = 30 * 24 * time.Hour

// Certificates finds authorities whose certificates end while the cluster is being changed.
func Certificates() check.Check {
	return check.Check{
		ID:    "api/certificates",
		Title: "A certificate that the API depends on has ended, or ends soon",
		Doc:   certificatesDoc,
		Needs: []string{"configmaps", "apiservices", "validatingwebhookconfigurations", "mutatingwebhookconfigurations", "customresourcedefinitions"},
		Lacks: func(pass *check.Pass) string {
			if pass.Snapshot.TakenAt.IsZero() {
				return "the input does not say when it was taken (theseus snapshot does)"
			}
			return ""
		},
		Run: certificates,
	}
}

func certificates(pass *check.Pass) []finding.Finding {
	now := pass.Snapshot.TakenAt.Time
	var found []finding.Finding
	look := func(subject finding.Subject, what, text string) {
		if f, ok := ends(subject, what, text, now); ok && !slices.ContainsFunc(found, func(other finding.Finding) bool { return other.Subject == f.Subject }) {
			found = append(found, f)
		}
	}
	for i := range pass.Snapshot.ConfigMaps {
		m := &pass.Snapshot.ConfigMaps[i]
		for _, key := range []string{"ca.crt", "client-ca-file", "requestheader-client-ca-file"} {
			look(finding.Subject{Kind: "ConfigMap", Namespace: m.Namespace, Name: m.Name}, "the authority in "+key, m.Data[key])
		}
	}
	for i := range pass.Snapshot.Other {
		object := &pass.Snapshot.Other[i]
		for _, bundle := range bundles(object) {
			text, err := base64.StdEncoding.DecodeString(bundle)
			if err == nil {
				look(finding.Subject{Kind: object.GetKind(), Name: object.GetName()}, "the authority in its caBundle", string(text))
			}
		}
	}
	return found
}

// bundles are the authorities by which the API server knows those that it calls.
func bundles(object *unstructured.Unstructured) []string {
	var all []string
	add := func(fields map[string]any, path ...string) {
		if text, ok, _ := unstructured.NestedString(fields, append(path, "caBundle")...); ok {
			all = append(all, text)
		}
	}
	switch object.GetKind() {
	case "APIService":
		add(object.Object, "spec")
	case "CustomResourceDefinition":
		add(object.Object, "spec", "conversion", "webhook", "clientConfig")
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		for _, hook := range hooks {
			if fields, ok := hook.(map[string]any); ok {
				add(fields, "clientConfig")
			}
		}
	}
	return all
}

// ends judges a bundle by the one of its certificates that lasts longest: an authority that is being replaced has two.
func ends(subject finding.Subject, what, text string, now time.Time) (finding.Finding, bool) {
	var last *x509.Certificate
	for rest := []byte(strings.TrimSpace(text)); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && (last == nil || certificate.NotAfter.After(last.NotAfter)) {
			last = certificate
		}
	}
	if last == nil || last.NotAfter.After(now.Add(soon)) {
		return finding.Finding{}, false
	}
	day := last.NotAfter.UTC().Format(time.DateOnly)
	f := finding.Finding{
		ID: "api/certificates", Severity: finding.Warn, Subject: subject,
		Message:  fmt.Sprintf("%s (%s) ends on %s: what goes wrong from then on will be taken for a fault of the network", what, last.Subject, day),
		Evidence: map[string]any{"notAfter": last.NotAfter.UTC().Format(time.RFC3339), "certificate": last.Subject.String()},
		Fix:      "renew it before the change",
	}
	if !last.NotAfter.After(now) {
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("%s (%s) ended on %s: the API server, or who asks it, refuses every connection that rests on it", what, last.Subject, day)
	}
	return f, true
}
