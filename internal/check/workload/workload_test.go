package workload

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/check/checktest"
)

func TestBarePod(t *testing.T) { checktest.Run(t, BarePod()) }

func TestSingleReplica(t *testing.T) { checktest.Run(t, SingleReplica()) }

func TestHostPort(t *testing.T) { checktest.Run(t, HostPort()) }
