package mtu

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestTooBig(t *testing.T) { checktest.Run(t, TooBig()) }

func TestPath(t *testing.T) { checktest.Run(t, Path()) }
