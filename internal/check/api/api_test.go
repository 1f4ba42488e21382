package api

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/check/checktest"
)

func TestRights(t *testing.T) { checktest.Run(t, Rights()) }

func TestAggregated(t *testing.T) { checktest.Run(t, Aggregated()) }

func TestCertificates(t *testing.T) { checktest.Run(t, Certificates()) }

func TestRemoved(t *testing.T) { checktest.Run(t, Removed()) }
