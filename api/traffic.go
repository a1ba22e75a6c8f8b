package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Limits of a report, in addition to those of engine.Traffic.
const (
	maxReported     = 1_000_000_000 // requests
	maxReportDetail = 256           // bytes
)

// TrafficTaken is the response to a report.
type TrafficTaken struct {
	Target   string    `json:"target"`
	By       string    `json:"by"`
	Requests int       `json:"requests"`
	Failures int       `json:"failures"`
	At       time.Time `json:"at"`
}

// report serves POST /v1/report: a gateway's report of the requests that it has sent to a target in the last seconds.
func (s *Server) report(_ http.ResponseWriter, r *http.Request) (any, error) {
	target, t, err := readTraffic(r)
	switch {
	case err != nil:
		return nil, err
	case s.config.Traffic == nil:
		return nil, errorf(http.StatusNotFound, "the engine takes no reports")
	}
	if err := s.config.Others.checkOwner(target); err != nil {
		return nil, err
	}
	if !s.config.Traffic(target, t) {
		return nil, errorf(http.StatusNotFound, "there is no target %q with a readiness probe", probe.CleanText(target, probe.MaxTargetName))
	}
	return TrafficTaken{target, t.By, t.Requests, t.Failures, time.Now().UTC()}, nil
}

// readTraffic parses the query of a report.
func readTraffic(r *http.Request) (target string, t engine.Traffic, err error) {
	query, err := parseFields(r.URL.RawQuery, "target", "by", "requests", "failures", "detail")
	if err != nil {
		return "", t, err
	}
	number := func(field string) (n int) {
		n, wrong := strconv.Atoi(query.Get(field))
		if (wrong != nil || n < 0 || n > maxReported) && err == nil {
			err = fmt.Errorf("%s is %.20q: write a number from 0 to %d", field, query.Get(field), maxReported)
		}
		return n
	}
	t = engine.Traffic{By: probe.OneLine(query.Get("by"), maxOperator), Requests: number("requests"), Failures: number("failures"), Detail: query.Get("detail")}
	switch {
	case err != nil:
	case t.By == "", len(query.Get("by")) > maxOperator:
		err = fmt.Errorf("by must name the gateway that reports, in up to %d bytes", maxOperator)
	case t.Failures > t.Requests:
		err = fmt.Errorf("failures is %d, and requests only %d: requests counts those that failed, too", t.Failures, t.Requests)
	case len(t.Detail) > maxReportDetail:
		err = fmt.Errorf("detail is longer than %d bytes", maxReportDetail)
	case query.Get("target") == "":
		err = errors.New("target is missing: name the target to which the requests were sent")
	}
	return query.Get("target"), t, err
}
