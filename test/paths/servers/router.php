<?php
// PHP's own server, by what its name for the script is, and by REQUEST_URI as frameworks take it.
$read = function ($p) { return $p === '/admin' || strpos($p, '/admin/') === 0 ? 'admin' : 'other'; };
header('X-Reads: ' . $read(rawurldecode(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '')));
