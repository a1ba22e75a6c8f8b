package api

import (
	"net/http"

	"github.com/sonde-probe/sonde/discover"
)

// DiscoveryList is the response of /v1/discoveries.
type DiscoveryList struct {
	Discoveries []discover.Status `json:"discoveries"` // sorted by name
}

// discoveries serves /v1/discoveries.
func (c *Config) discoveries(http.ResponseWriter, *http.Request) (any, error) {
	list := DiscoveryList{Discoveries: []discover.Status{}}
	if c.Discoveries != nil {
		for _, d := range c.Discoveries() {
			d.Answered, d.ErrorSince = utc(d.Answered), utc(d.ErrorSince)
			list.Discoveries = append(list.Discoveries, d)
		}
	}
	return list, nil
}
