"""The functions of PostgreSQL and SQLite that compute and nothing else.

Those that look at the clock, at chance or at the server are among them, and `nextval`, which no
rollback undoes. Left out is whatever writes, tells somebody, takes a lock, sets a setting, or runs a
statement that it is given. With them stand the types and forms of the grammar that look like calls.
"""

from typing import Final

_POSTGRESQL: Final = """
    abbrev abs aclcontains acldefault aclexplode acos acosd acosh age any_value area array
    array_agg array_append array_cat array_dims array_fill array_length array_lower array_ndims
    array_position array_positions array_prepend array_remove array_replace array_reverse
    array_sample array_shuffle array_sort array_to_json array_to_string array_to_tsvector
    array_upper ascii asin asind asinh atan atan2 atan2d atand atanh avg bernoulli bigint bit
    bit_and bit_count bit_length bit_or bit_xor bool bool_and bool_or boolean box bpchar broadcast
    btrim bytea cardinality casefold cast cbrt ceil ceiling center char char_length character
    character_length chr cidr circle clock_timestamp coalesce col_description concat concat_ws
    convert convert_from convert_to corr cos cosd cosh cot cotd count covar_pop covar_samp crc32
    crc32c cube cume_dist current_catalog current_database current_date current_role
    current_schema current_schemas current_setting current_time current_timestamp current_user
    currval date date_add date_bin date_part date_subtract date_trunc daterange dec decimal decode
    degrees dense_rank diagonal diameter div double encode enum_first enum_last enum_range erf
    erfc every exp extract factorial family first_value float float4 float8 floor format
    format_type gamma gcd gen_random_uuid generate_series generate_subscripts get_bit get_byte
    get_current_ts_config greatest grouping has_any_column_privilege has_column_privilege
    has_database_privilege has_foreign_data_wrapper_privilege has_function_privilege
    has_language_privilege has_largeobject_privilege has_parameter_privilege has_schema_privilege
    has_sequence_privilege has_server_privilege has_table_privilege has_tablespace_privilege
    has_type_privilege hashtext hashtextextended height host hostmask icu_unicode_version in_range
    inet_client_addr inet_client_port inet_merge inet_same_family inet_server_addr
    inet_server_port initcap int int2 int4 int4multirange int4range int8 int8multirange int8range
    integer interval is_normalized isclosed isempty isfinite ishorizontal isopen isparallel isperp
    isvertical json json_agg json_agg_strict json_array json_array_elements
    json_array_elements_text json_array_length json_arrayagg json_build_array json_build_object
    json_each json_each_text json_exists json_extract_path json_extract_path_text json_object
    json_object_agg json_object_agg_strict json_object_agg_unique json_object_agg_unique_strict
    json_object_keys json_objectagg json_populate_record json_populate_recordset json_query
    json_scalar json_serialize json_strip_nulls json_table json_to_record json_to_recordset
    json_to_tsvector json_typeof json_value jsonb jsonb_agg jsonb_agg_strict jsonb_array_elements
    jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each
    jsonb_each_text jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object
    jsonb_object_agg jsonb_object_agg_strict jsonb_object_agg_unique
    jsonb_object_agg_unique_strict jsonb_object_keys jsonb_path_exists jsonb_path_exists_tz
    jsonb_path_match jsonb_path_match_tz jsonb_path_query jsonb_path_query_array
    jsonb_path_query_array_tz jsonb_path_query_first jsonb_path_query_first_tz jsonb_path_query_tz
    jsonb_populate_record jsonb_populate_record_valid jsonb_populate_recordset jsonb_pretty
    jsonb_set jsonb_set_lax jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_to_tsvector
    jsonb_typeof justify_days justify_hours justify_interval lag last_value lastval lcm lead least
    left length lgamma like line ln localtime localtimestamp log log10 lower lower_inc lower_inf
    lpad lseg ltrim macaddr macaddr8 make_date make_interval make_time make_timestamp
    make_timestamptz masklen max md5 merge_action min min_scale mod mode money multirange mxid_age
    name nchar netmask network nextval normalize notlike now npoints nth_value ntile nullif
    num_nonnulls num_nulls numeric nummultirange numnode numrange obj_description octet_length oid
    overlaps overlay parse_ident path percent_rank percentile_cont percentile_disc pg_backend_pid
    pg_blocking_pids pg_char_to_encoding pg_client_encoding pg_collation_for
    pg_collation_is_visible pg_column_compression pg_column_size pg_conversion_is_visible
    pg_current_snapshot pg_current_wal_lsn pg_current_xact_id pg_current_xact_id_if_assigned
    pg_database_size pg_encoding_max_length pg_encoding_to_char pg_function_is_visible
    pg_get_constraintdef pg_get_expr pg_get_functiondef pg_get_indexdef pg_get_keywords
    pg_get_serial_sequence pg_get_userbyid pg_get_viewdef pg_has_role pg_indexes_size
    pg_is_in_recovery pg_is_other_temp_schema pg_lsn pg_my_temp_schema pg_opclass_is_visible
    pg_operator_is_visible pg_opfamily_is_visible pg_partition_ancestors pg_partition_tree
    pg_postmaster_start_time pg_relation_is_updatable pg_relation_size pg_size_bytes
    pg_size_pretty pg_sleep pg_sleep_for pg_sleep_until pg_snapshot_xip pg_snapshot_xmax
    pg_snapshot_xmin pg_statistics_obj_is_visible pg_table_is_visible pg_table_size
    pg_tablespace_size pg_total_relation_size pg_trigger_depth pg_ts_config_is_visible
    pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible pg_type_is_visible
    pg_typeof pg_visible_in_snapshot pg_xact_commit_timestamp pg_xact_status phraseto_tsquery pi
    plainto_tsquery point polygon position pow power precision querytree quote_ident quote_literal
    quote_nullable radians radius random random_normal range_agg range_intersect_agg range_merge
    rank real regclass regexp_count regexp_instr regexp_like regexp_match regexp_matches
    regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy regtype repeat replace
    reverse right rollup round row row_number row_to_json rpad rtrim scale session_user set_bit
    set_byte set_masklen setweight sha224 sha256 sha384 sha512 shobj_description sign sin sind
    sinh smallint split_part sqrt starts_with statement_timestamp stddev stddev_pop stddev_samp
    string_agg string_to_array string_to_table strip strpos substr substring sum system
    system_user tan tand tanh text time timeofday timestamp timestamptz timetz timezone to_ascii
    to_bin to_char to_date to_hex to_json to_jsonb to_number to_oct to_regclass to_regcollation
    to_regnamespace to_regoper to_regoperator to_regproc to_regprocedure to_regrole to_regtype
    to_regtypemod to_timestamp to_tsquery to_tsvector transaction_timestamp translate treat trim
    trim_array trim_scale trunc ts_debug ts_delete ts_filter ts_headline ts_lexize ts_parse
    ts_rank ts_rank_cd ts_token_type tsmultirange tsquery tsquery_phrase tsrange tstzmultirange
    tstzrange tsvector tsvector_to_array txid_current txid_current_if_assigned
    txid_current_snapshot txid_snapshot_xip txid_snapshot_xmax txid_snapshot_xmin txid_status
    txid_visible_in_snapshot unicode_assigned unicode_version unistr unnest upper upper_inc
    upper_inf user uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 var_pop var_samp
    varbit varchar variance varying version websearch_to_tsquery width width_bucket xid xml
    xml_is_well_formed xml_is_well_formed_content xml_is_well_formed_document xmlagg xmlcomment
    xmlconcat xmlelement xmlexists xmlforest xmlparse xmlpi xmlroot xmlserialize xmltable xmltext
    xpath xpath_exists
"""

_SQLITE: Final = """
    abs acos acosh asin asinh atan atan2 atanh avg bm25 cast ceil ceiling changes char coalesce
    concat concat_ws cos cosh count cume_dist current_date current_time current_timestamp date
    datetime decimal degrees dense_rank exp first_value floor format glob group_concat hex
    highlight if ifnull iif instr int integer json json_array json_array_insert json_array_length
    json_each json_extract json_group_array json_group_object json_insert json_object json_patch
    json_pretty json_quote json_remove json_replace json_set json_tree json_type json_valid jsonb
    jsonb_array jsonb_array_insert jsonb_each jsonb_extract jsonb_group_array jsonb_group_object
    jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set jsonb_tree
    julianday lag last_insert_rowid last_value lead length like likelihood likely ln log log10
    log2 lower ltrim matchinfo max median min mod nth_value ntile nullif numeric nvarchar
    octet_length offsets percent_rank percentile percentile_cont percentile_disc pi pow power
    printf quote radians random randomblob rank replace round row row_number rtrim sign sin sinh
    snippet soundex sqlite_compileoption_get sqlite_compileoption_used sqlite_offset
    sqlite_source_id sqlite_version sqrt strftime string_agg substr substring subtype sum tan tanh
    time timediff total total_changes trim trunc typeof unhex unicode unistr unistr_quote
    unixepoch unlikely upper varchar zeroblob
"""

PURE: Final = {"postgresql": frozenset(_POSTGRESQL.split()), "sqlite": frozenset(_SQLITE.split())}
"""The names by dialect, in small letters."""
