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

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed certificates.md
var certificatesDoc string

// soon is how long before its expiry a certificate is reported: the change and its rollback must fit in.
const soon = 30 * 24 * time.Hour

// Certificates reports CA certificates that have expired, or may expire while the cluster is being changed.
func Certificates() check.Check {
	return check.Check{
		ID:    "api/certificates",
		Title: "A certificate that the API depends on has expired or expires soon",
		Doc:   certificatesDoc,
		Needs: []string{"configmaps", "apiservices", "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
			"customresourcedefinitions"},
		Lacks: func(pass *check.Pass) string {
			if pass.Snapshot.TakenAt.IsZero() {
				return "the input does not say when it was taken (that of theseus snapshot does)"
			}
			return ""
		},
		Run: certificates,
	}
}

// authority is a CA certificate and the objects that contain it: kube-root-ca.crt is in every namespace.
type authority struct {
	certificate *x509.Certificate
	what        string // where it is in the first holder
	holders     []finding.Subject
}

func certificates(pass *check.Pass) []finding.Finding {
	var all []*authority
	look := func(subject finding.Subject, what, text string) {
		last := longest(text)
		if last == nil {
			return
		}
		i := slices.IndexFunc(all, func(a *authority) bool { return a.certificate.Equal(last) })
		if i < 0 {
			all = append(all, &authority{certificate: last, what: what})
			i = len(all) - 1
		}
		if !slices.Contains(all[i].holders, subject) {
			all[i].holders = append(all[i].holders, subject)
		}
	}
	for i := range pass.Snapshot.ConfigMaps {
		m := &pass.Snapshot.ConfigMaps[i]
		for _, key := range []string{"ca.crt", "client-ca-file", "requestheader-client-ca-file"} {
			look(finding.Subject{Kind: "ConfigMap", Namespace: m.Namespace, Name: m.Name},
				"the CA in "+key, m.Data[key])
		}
	}
	for i := range pass.Snapshot.Other {
		object := &pass.Snapshot.Other[i]
		for _, bundle := range bundles(object) {
			text, err := base64.StdEncoding.DecodeString(bundle)
			if err == nil {
				look(finding.Subject{Kind: object.GetKind(), Name: object.GetName()},
					"the CA in its caBundle", string(text))
			}
		}
	}
	var found []finding.Finding
	for _, a := range all {
		if f, ok := a.ends(pass.Snapshot.TakenAt.Time); ok {
			found = append(found, f)
		}
	}
	return found
}

// bundles returns the CA bundles with which the API server verifies the servers that it calls.
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

// longest returns the certificate of a bundle that expires last. A bundle is judged by it, since it contains two
// certificates while a CA is being replaced.
func longest(text string) (last *x509.Certificate) {
	for rest := []byte(strings.TrimSpace(text)); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil &&
			(last == nil || certificate.NotAfter.After(last.NotAfter)) {
			last = certificate
		}
	}
	return last
}

func (a *authority) ends(now time.Time) (finding.Finding, bool) {
	end := a.certificate.NotAfter.UTC()
	if end.After(now.Add(soon)) {
		return finding.Finding{}, false
	}
	who := fmt.Sprintf("%s (%s", a.what, a.certificate.Subject)
	if others := len(a.holders) - 1; others > 0 {
		who += fmt.Sprintf("; also in %s", cluster.Count(others, "other object"))
	}
	who += ")"
	f := finding.Finding{
		ID: "api/certificates", Severity: finding.Warn, Subject: a.holders[0],
		Message: fmt.Sprintf("%s expires on %s: failures from then on will look like faults of the network",
			who, end.Format(time.DateOnly)),
		Evidence: map[string]any{"notAfter": end.Format(time.RFC3339), "certificate": a.certificate.Subject.String(),
			"objects": len(a.holders)},
		Fix: "renew it before the change",
	}
	if !end.After(now) {
		f.Severity = finding.Block
		f.Message = fmt.Sprintf(
			"%s expired on %s: the API server or its clients refuse every connection that depends on it",
			who, end.Format(time.DateOnly))
	}
	return f, true
}
