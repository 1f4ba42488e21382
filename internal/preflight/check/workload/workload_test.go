package workload

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestBarePod(t *testing.T) { checktest.Run(t, BarePod()) }

func TestSingleReplica(t *testing.T) { checktest.Run(t, SingleReplica()) }

func TestHostPort(t *testing.T) { checktest.Run(t, HostPort()) }

func TestReadiness(t *testing.T) { checktest.Run(t, Readiness()) }

func TestGracePeriod(t *testing.T) { checktest.Run(t, GracePeriod()) }

func TestUnready(t *testing.T) { checktest.Run(t, Unready()) }

func TestMonitoring(t *testing.T) { checktest.Run(t, Monitoring()) }

func TestNetworkAnnotations(t *testing.T) { checktest.Run(t, NetworkAnnotations()) }

func TestLocalStorage(t *testing.T) { checktest.Run(t, LocalStorage()) }

func TestHostNetwork(t *testing.T) { checktest.Run(t, HostNetwork()) }
