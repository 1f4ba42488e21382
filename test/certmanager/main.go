// Command certmanager is cert-manager for the tests in a lab: its own controllers and its webhook against an API
// server, and next to them pebble, a real ACME server, for them to ask.
//
//	certmanager KUBECONFIG NAMESERVER PORT
//
// The name server (host:port) is the one that both ask for the records of DNS-01, and pebble for the addresses to which
// it goes for HTTP-01, on the port. When all runs, it prints an Answer as JSON; it ends when it is killed.
package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"time"

	"github.com/cert-manager/cert-manager/internal/apis/config/shared"
	config "github.com/cert-manager/cert-manager/internal/apis/config/webhook"
	"github.com/cert-manager/cert-manager/internal/webhook"
	"github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	"github.com/cert-manager/cert-manager/pkg/controller"
	// each of these makes itself known to controller
	_ "github.com/cert-manager/cert-manager/pkg/controller/acmechallenges"
	_ "github.com/cert-manager/cert-manager/pkg/controller/acmeorders"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/gateways"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/acme"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/acme"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	"github.com/go-logr/logr"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Answer is what the tests need to know: of pebble, and on which port the webhook is.
type Answer struct {
	Directory string `json:"directory"` // its URL
	Server    []byte `json:"server"`    // the certificate of that URL, as PEM
	Root      []byte `json:"root"`      // the root that it issues under, as PEM
	Webhook   int    `json:"webhook"`
}

// refused is a domain that pebble issues nothing for.
const refused = "refused.example.org"

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: certmanager KUBECONFIG NAMESERVER PORT")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, nameserver, port string) error {
	http, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	answer, err := pebble(nameserver, http)
	if err != nil {
		return err
	}
	ended := make(chan error)
	if err := controllers(ctx, kubeconfig, nameserver, ended); err != nil {
		return err
	}
	if answer.Webhook, err = admission(ctx, kubeconfig, ended); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		return err
	}
	return <-ended
}

// pebble starts the ACME server in this process. It asks the name server, at once, for whatever it is to make sure of.
func pebble(nameserver string, http int) (*Answer, error) {
	for name, value := range map[string]string{"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0",
		"PEBBLE_AUTHZREUSE": "0"} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	if err := store.AddBlockedDomain(refused); err != nil {
		return nil, err
	}
	authority := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	front := wfe.New(quiet, store, va.New(quiet, http, 0, false, nameserver, store), authority,
		[]string{"pebble.test"}, false, false, 1, 1)
	server := httptest.NewTLSServer(front.Handler()) // ends with the process
	encode := func(der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return &Answer{Directory: server.URL + wfe.DirectoryPath, Server: encode(server.Certificate().Raw),
		Root: encode(authority.GetRootCert(0).Cert.Raw)}, nil
}

// controllers starts all of cert-manager's that are linked in, with what its own program has as defaults
// (docs/reference/controller in its documentation) but for the name server and how often it is asked.
func controllers(ctx context.Context, kubeconfig, nameserver string, ended chan<- error) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		ACMEOptions: controller.ACMEOptions{
			DNS01Nameservers:      []string{nameserver},
			DNS01CheckRetryPeriod: time.Second,
			HTTP01SolverImage:     "acmesolver",
		},
		IngressShimOptions: controller.IngressShimOptions{
			DefaultIssuerKind:                 "Issuer",
			DefaultIssuerGroup:                certmanager.GroupName,
			DefaultAutoCertificateAnnotations: []string{"kubernetes.io/tls-acme"},
		},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes: []string{"*", "-kubectl.kubernetes.io/",
				"-fluxcd.io/", "-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: 60},
		ConfigOptions:    controller.ConfigOptions{EnableGatewayAPI: true},
	})
	if err != nil {
		return err
	}
	var all []controller.Interface
	for name, construct := range controller.Known() {
		one, err := construct(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, one)
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	shared.GWShared.Start(ctx.Done())
	for _, one := range all {
		go func() { ended <- one.Run(5, ctx) }()
	}
	return nil
}

// admission starts the webhook. The authority of its certificate is in the Secret cert-manager/webhook-ca.
func admission(ctx context.Context, kubeconfig string, ended chan<- error) (port int, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // for a port that is free
	if err != nil {
		return 0, err
	}
	port = listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return 0, err
	}
	ctrllog.SetLogger(logr.Discard()) // it would complain of none
	server, err := webhook.NewCertManagerWebhookServer(logr.Discard(), config.WebhookConfiguration{
		KubeConfig: kubeconfig, SecurePort: int32(port), MetricsListenAddress: "0",
		TLSConfig: shared.TLSConfig{Dynamic: shared.DynamicServingConfig{SecretNamespace: "cert-manager",
			SecretName: "webhook-ca", DNSNames: []string{"localhost"}, LeafDuration: time.Hour}},
	})
	if err == nil {
		go func() { ended <- server.Run(ctx) }()
	}
	return port, err
}
